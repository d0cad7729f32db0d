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

// secretPrefix begins the keys of blobs that are no files of anybody. A Storage
// gives none of them away and changes none, whatever a request has led it to;
// only a KeyStore does.
const secretPrefix = "comfyhub-keys/" //nolint:gosec // a folder, no secret

// errSecret is the answer to whoever asks a Storage for one.
var errSecret = fmt.Errorf("%w: the key is the hub's own", ErrGone)

// maxSecret bounds what a KeyStore reads of one object, in bytes.
const maxSecret = 1 << 16

// isSecret reports whether a key, as a file system would read it, is that of a
// secret. Case counts as the same: some file systems do not tell it apart.
func isSecret(key string) bool {
	clean := strings.ToLower(path.Clean("/" + strings.ReplaceAll(key, "\\", "/")))
	return strings.HasPrefix(clean+"/", "/"+secretPrefix)
}

// KeyStore is the part of a storage for the hubs' own keys. In a folder its
// files are readable by the hub's user only, whatever the folder allows.
type KeyStore struct{ storage *Storage }

// KeyStore gives the storage's part for keys.
func (s *Storage) KeyStore() KeyStore { return KeyStore{s} }

// List gives the names of all objects.
func (k KeyStore) List(ctx context.Context) (names []string, err error) {
	err = k.storage.list(ctx, secretPrefix, func(b Blob) error {
		names = append(names, strings.TrimPrefix(b.Key, secretPrefix))
		return nil
	})
	return names, err
}

// Read gives an object; found is false where there is none.
func (k KeyStore) Read(ctx context.Context, name string) (body []byte, found bool, err error) {
	r, err := k.storage.open(ctx, secretPrefix+name, 0, -1)
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

// Write puts an object, whole or not at all, in place of an older one.
func (k KeyStore) Write(ctx context.Context, name string, body []byte) error {
	_, err := k.storage.write(ctx, secretPrefix+name, bytes.NewReader(body), writeOptions{private: true})
	return err
}

// Delete removes an object; one that is not there is no error.
func (k KeyStore) Delete(ctx context.Context, name string) error {
	return k.storage.remove(ctx, secretPrefix+name)
}
