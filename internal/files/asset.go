package files

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/zeebo/blake3"

	"github.com/comfyhub/comfyhub/internal/job"
)

const (
	// assetFolder is where a tenant's assets are among its inputs: each in a folder of its own,
	// which is called like its id, under its hash and the name that it was uploaded with. So an
	// asset is an upload like any other, with the same limits, and needs no index.
	assetFolder = "assets"
	// hashPrefix begins a hash as clients write it, and hashDigits is how long the rest is.
	hashPrefix, hashDigits = "blake3:", 64
	// maxAssetName bounds the name of an asset, in bytes: its hash stands before it.
	maxAssetName = maxElement - hashDigits - 1
)

// Asset is an uploaded file that is found by its content: uploaded twice, it is one asset of its
// tenant.
type Asset struct {
	// ID is a UUID that follows from the content.
	ID string
	// Hash is "blake3:" and 64 hex digits.
	Hash string
	// Name is what it was called when it was uploaded, without folders.
	Name string
	// Ref is the input that it is.
	Ref job.FileRef
	// Size is in bytes.
	Size    int64
	Created time.Time

	sha256 string
}

// AssetID is the id of the asset with a hash; false for what is no hash.
func AssetID(hash string) (id string, ok bool) {
	digits, ok := strings.CutPrefix(strings.ToLower(hash), hashPrefix)
	sum, err := hex.DecodeString(digits)
	if !ok || err != nil || len(digits) != hashDigits {
		return "", false
	}
	u := uuid.UUID(sum[:16])
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // version 8: by a rule of our own
	return u.String(), true
}

// FindAsset finds a tenant's asset by its id. The error is ErrNotFound, or one of Redis.
func (s *Uploads) FindAsset(ctx context.Context, tenant, id string) (Asset, error) {
	if u, err := uuid.Parse(id); err != nil || u.String() != id {
		return Asset{}, ErrNotFound
	}
	entries, err := s.store.List(ctx, tenant, job.TypeInput, assetFolder+"/"+id)
	if err != nil {
		return Asset{}, err
	}
	for _, e := range entries {
		if a, ok := assetOf(id, e); ok {
			return a, nil
		}
	}
	return Asset{}, ErrNotFound
}

// assetOf is the asset that a file in the folder of an id is; false for one that somebody has
// put there under another name.
func assetOf(id string, e Entry) (Asset, bool) {
	digits, name, ok := strings.Cut(e.Ref.Filename, "_")
	if of, valid := AssetID(hashPrefix + digits); !ok || !valid || of != id {
		return Asset{}, false
	}
	return Asset{ID: id, Hash: hashPrefix + digits, Name: name, Ref: e.Ref, Size: e.Size, Created: e.Created, sha256: e.SHA256}, true
}

// DeleteAsset removes a tenant's asset; jobs that have it already keep it. The error is
// ErrNotFound, or one of Redis.
func (s *Uploads) DeleteAsset(ctx context.Context, tenant, id string) error {
	if _, err := s.FindAsset(ctx, tenant, id); err != nil {
		return err
	}
	entries, err := s.store.List(ctx, tenant, job.TypeInput, assetFolder+"/"+id)
	if err != nil {
		return err
	}
	var refs []job.FileRef // two uploads at once may have given it two names
	for _, e := range entries {
		refs = append(refs, e.Ref)
	}
	return s.store.Remove(ctx, tenant, refs)
}

// NewAsset is an upload that has arrived and has no name yet. It must be closed.
type NewAsset struct {
	// Hash is that of its content, as in [Asset].
	Hash string
	// Path and Expected are the fields file_path and expected_hash of the form.
	Path, Expected string

	form  *form
	store *Store
}

// Close deletes what has arrived.
func (n *NewAsset) Close() { n.form.Close() }

// ReceiveAsset takes in the form of an upload: its field file, and what belongs to it. A form
// without a file is nil without an error. [Uploads.Refuse] answers its errors.
func (s *Uploads) ReceiveAsset(w http.ResponseWriter, r *http.Request) (*NewAsset, error) {
	f, err := readForm(w, r, formShape{file: "file", fields: []string{"file_path", "expected_hash"}}, s.store.spool, s.options.MaxSize())
	if err != nil {
		return nil, err
	}
	if f.file == nil {
		f.Close()
		return nil, nil
	}
	hash := blake3.New()
	if _, err := io.Copy(hash, f.file.reader()); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: spool: %w", ErrStorage, err)
	}
	return &NewAsset{
		Hash: hashPrefix + hex.EncodeToString(hash.Sum(nil)), Path: f.fields["file_path"].text, Expected: f.fields["expected_hash"].text,
		form: f, store: s.store,
	}, nil
}

// KeepAsset stores an upload for a tenant, under a name unless it has the asset already; created
// says that it had not. The error is a *FullError, one of Redis or one of the storage.
func (s *Uploads) KeepAsset(ctx context.Context, tenant, name string, n *NewAsset) (a Asset, created bool, err error) {
	id, _ := AssetID(n.Hash)
	ref := job.FileRef{Type: job.TypeInput, Subfolder: assetFolder + "/" + id, Filename: strings.TrimPrefix(n.Hash, hashPrefix) + "_" + shortName(name)}
	known, err := s.FindAsset(ctx, tenant, id)
	if err == nil {
		ref = known.Ref // it is used again
	} else if !errors.Is(err, ErrNotFound) {
		return Asset{}, false, err
	}
	// By /upload/image somebody may have put other bytes there.
	u, err := s.store.newUpload(ctx, tenant, ref, known.sha256 != n.form.file.sha256)
	if err != nil {
		return Asset{}, false, err
	}
	if _, err := u.keep(ctx, n.form.file, n.form.file.sha256); err != nil {
		return Asset{}, false, err
	}
	a, err = s.FindAsset(ctx, tenant, id)
	return a, known.ID == "", err
}

// shortName is a name that fits, with its extension.
func shortName(name string) string {
	if len(name) <= maxAssetName {
		return name
	}
	stem, ext := splitExt(name)
	if len(ext) > maxAssetName/2 {
		stem, ext = name, ""
	}
	return strings.ToValidUTF8(stem[:maxAssetName-len(ext)], "") + ext
}
