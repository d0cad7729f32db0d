package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Upload stores r under the name that ComfyUI would give it and returns that
// name; the subfolder is echoed as it was sent. Without overwrite, a taken name
// gets " (1)", " (2)" and so on, except where the file of that name has the same
// bytes. Refused names are a *StatusError.
func (s *Store) Upload(ctx context.Context, tenant string, ref job.FileRef, overwrite bool, r io.Reader) (job.FileRef, error) {
	u, err := s.newUpload(ctx, tenant, ref, overwrite)
	if err != nil {
		return job.FileRef{}, err
	}
	sp, err := newSpool(ctx, s.spool, r, 0)
	if err != nil {
		return job.FileRef{}, err
	}
	defer sp.Close()
	return u.keep(ctx, sp, sp.sha256)
}

// upload is a file on its way to a name.
type upload struct {
	store     *Store
	tenant    string
	ref       job.FileRef // as sent
	place     place
	overwrite bool
}

// newUpload checks a name as ComfyUI does: 400 for one that leads out of its folder, 500 for one
// with which writing the file would fail.
func (s *Store) newUpload(ctx context.Context, tenant string, ref job.FileRef, overwrite bool) (*upload, error) {
	if !knownType(ref.Type) {
		return nil, &StatusError{http.StatusInternalServerError}
	}
	if ref.Filename == "" {
		return nil, &StatusError{http.StatusBadRequest}
	}
	dir, ok := cleanFolder(ref.Subfolder)
	if !ok {
		return nil, &StatusError{http.StatusBadRequest}
	}
	if _, ok := cleanFolder(path.Join(dir, slashes(ref.Filename))); !ok {
		return nil, &StatusError{http.StatusBadRequest}
	}
	p, ok := placeIn(ref.Type, dir, ref.Filename)
	if !ok {
		return nil, &StatusError{http.StatusInternalServerError}
	}
	if p.dir != dir {
		// ComfyUI creates the subfolder, but not folders within the file's name.
		switch there, err := s.hasFolder(ctx, tenant, p); {
		case err != nil:
			return nil, err
		case !there:
			return nil, &StatusError{http.StatusInternalServerError}
		}
	}
	return &upload{store: s, tenant: tenant, ref: ref, place: p, overwrite: overwrite}, nil
}

// errUnsafe says that a blob was not held long enough; it is written again.
var errUnsafe = errors.New("files: blob may have been swept")

// keep stores the spooled bytes under the upload's name and returns the name it got. compare is the
// hash that decides whether a file with that name is the same.
func (u *upload) keep(ctx context.Context, sp *spool, compare string) (job.FileRef, error) {
	key := contentKey(sp.sha256)
	now := u.store.now()
	e := Entry{
		Key: key, Size: sp.size, SHA256: sp.sha256,
		ETag: makeETag(now, sp.size), Modified: now, Created: now,
	}
	entry, err := e.encode()
	if err != nil {
		return job.FileRef{}, err
	}
	// First, so that nothing is written that is then refused.
	if _, _, err := u.name(ctx, compare, entry, true); err != nil {
		return job.FileRef{}, err
	}
	for try := 0; ; try++ {
		if err := u.store.blobs.hold(ctx, key); err != nil {
			return job.FileRef{}, err
		}
		if err := u.store.blobs.write(ctx, key, sp); err != nil {
			return job.FileRef{}, err
		}
		ref, same, err := u.name(ctx, compare, entry, false)
		if p, ok := placeOf(ref); ok && err == nil && !same {
			e.raw = entry
			u.store.copies.note(nameKey{u.tenant, p}, e)
		}
		if !errors.Is(err, errUnsafe) || try == 2 {
			return ref, err
		}
	}
}

// expect returns the name that keep would give, without storing anything; same says that the file
// with this name already has the bytes.
func (u *upload) expect(ctx context.Context, compare string) (name job.FileRef, same bool, err error) {
	return u.name(ctx, compare, "", true)
}

// name finds the upload's name and records it, or with dry only tells the name and whether there is
// room.
func (u *upload) name(ctx context.Context, compare, entry string, dry bool) (name job.FileRef, same bool, err error) {
	stem, ext := splitExt(u.place.name)
	n, isNumbered := parseNumbered(u.place.name)
	number := ""
	if isNumbered {
		number = strconv.FormatInt(n.number, 10)
	}
	limits := u.store.limits(u.tenant)
	args := []any{
		u.store.keys.folder(u.tenant, u.place), u.store.keys.numbers(u.tenant, u.place),
		u.store.keys.folders(u.tenant, u.place.typ), u.place.dir,
		stem, ext, compare, flag(u.overwrite), n.prefix, number, entry, u.tenant, u.place.typ,
		limits.Bytes, limits.Files, flag(dry), u.store.grace.arg(),
	}
	reply := []string{"more"}
	for reply[0] == "more" { // others get their turn in between
		var err error
		if reply, err = u.store.db.Run(ctx, putScript, args...); err != nil {
			return job.FileRef{}, false, fmt.Errorf("files: name an upload: %w", err)
		}
	}
	switch reply[0] {
	case "unsafe":
		return job.FileRef{}, false, errUnsafe
	case "full":
		return job.FileRef{}, false, &FullError{Limit: reply[1]}
	}
	// Folders inside the name come back as they were sent.
	ref := u.ref
	ref.Filename = ref.Filename[:len(ref.Filename)-len(u.place.name)] + reply[1]
	return ref, reply[0] == "same", nil
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}
