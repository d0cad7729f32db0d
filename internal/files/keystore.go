package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// secretPrefix begins the keys of blobs that are nobody's files. A Storage neither hands any of
// them out nor changes any, whatever a request has led it to; only a KeyStore does.
const secretPrefix = "comfyhub-keys/" //nolint:gosec // a folder, no secret

// errSecret is the answer to anybody who asks a Storage for one.
var errSecret = fmt.Errorf("%w: the key is the hub's own", ErrGone)

// maxSecret bounds what a KeyStore reads of one object, in bytes.
const maxSecret = 1 << 16

// isSecret reports whether a key, read as a file system would, is that of a secret. It ignores
// case: some file systems do too.
func isSecret(key string) bool {
	clean := strings.ToLower(path.Clean("/" + strings.ReplaceAll(key, "\\", "/")))
	return strings.HasPrefix(clean+"/", "/"+secretPrefix)
}

// KeyStore is the part of a storage for the hubs' own keys. In a folder, only the hub's user can
// read its files, whatever the folder allows.
type KeyStore struct{ backend *backend }

// KeyStore returns the storage's part for keys.
func (s *Storage) KeyStore() KeyStore { return KeyStore{s.backend} }

// List returns the names of all objects.
func (k KeyStore) List(ctx context.Context) (names []string, err error) {
	err = k.backend.list(ctx, secretPrefix, func(b Blob) error {
		names = append(names, strings.TrimPrefix(b.Key, secretPrefix))
		return nil
	})
	return names, err
}

// Read returns an object; found is false if there is none.
func (k KeyStore) Read(ctx context.Context, name string) (body []byte, found bool, err error) {
	r, err := k.backend.open(ctx, secretPrefix+name, 0, -1)
	if errors.Is(err, ErrGone) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	if body, err = io.ReadAll(io.LimitReader(r, maxSecret)); err != nil {
		return nil, false, fmt.Errorf("%w: read: %w", ErrStorage, err)
	}
	return body, true, nil
}

// Write stores an object, whole or not at all, replacing an older one.
func (k KeyStore) Write(ctx context.Context, name string, body []byte) error {
	_, err := k.backend.write(ctx, secretPrefix+name, bytes.NewReader(body), writeOptions{private: true})
	return err
}

// Delete removes an object; it is not an error if there is none.
func (k KeyStore) Delete(ctx context.Context, name string) error {
	return k.backend.remove(ctx, secretPrefix+name)
}
