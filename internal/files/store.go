package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Store is the files of all tenants: their names in Redis, their bytes in a storage. It is safe for
// concurrent use, even by several hubs that share both.
// [Retention], [Trash], [Recovery], [Placed] and [Sharing] are about the same files.
type Store struct {
	db       *redis.DB
	keys     keys
	storage  *Storage
	blobs    blobs
	grants   grants
	spool    string
	log      *slog.Logger
	now      func() time.Time
	limits   func(tenant string) Limits
	grace    grace
	pushed   func(bytes int64) // to instances
	fetched  func(bytes int64) // from them
	copies   *copies           // nil with the embedded server
	recovery *Recovery
}

// Options adjust a Store; the zero value is fine.
type Options struct {
	// SpoolDir is where uploads are kept until their hash is known. Default: the system's folder
	// for temporary files.
	SpoolDir string
	// Logger never gets names of files. Default: nothing is logged.
	Logger *slog.Logger
	// Now is the clock for times that clients see. Default: Redis's, which all hubs share.
	Now func() time.Time
	// Limits bounds what a tenant uploads. Default: no bound.
	Limits func(tenant string) Limits
	// Trash is how long a name that was overwritten, or that nobody had used for long, can be taken
	// back. Default: not at all.
	Trash func() time.Duration
	// Pushed and Fetched are told of each file that was copied to or from an instance, with its
	// size in bytes. Default: nobody is.
	Pushed, Fetched func(bytes int64)
}

// Limits bound a tenant's uploads. Zero means no bound.
type Limits struct {
	Bytes int64 // equal files count once
	Files int
}

// New makes a Store. It does not wait for Redis.
func New(db *redis.DB, storage *Storage, o Options) *Store {
	s := &Store{
		db: db, keys: keys{db}, storage: storage, blobs: blobs{db, storage}, grants: grants{db, storage},
		spool: o.SpoolDir, log: o.Logger, now: o.Now, limits: o.Limits, grace: o.Trash, pushed: o.Pushed, fetched: o.Fetched,
	}
	if !db.Embedded() {
		s.copies = newCopies()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.pushed == nil {
		s.pushed = func(int64) {}
	}
	if s.fetched == nil {
		s.fetched = func(int64) {}
	}
	if s.grace == nil {
		s.grace = func() time.Duration { return 0 }
	}
	if s.limits == nil {
		s.limits = func(string) Limits { return Limits{} }
	}
	if s.now == nil {
		s.now = db.Clock().Now
	}
	s.recovery = &Recovery{db: db, keys: s.keys, blobs: s.blobs, copies: s.copies, log: s.log, turn: semaphore.NewWeighted(1)}
	return s
}

// Recovery puts names back that Redis has lost.
func (s *Store) Recovery() *Recovery { return s.recovery }

// Resolve finds a file by its name, or ErrNotFound.
func (s *Store) Resolve(ctx context.Context, tenant string, ref job.FileRef) (Entry, error) {
	p, ok := placeOf(ref)
	if !ok {
		return Entry{}, ErrNotFound
	}
	return s.resolve(ctx, tenant, p)
}

func (s *Store) resolve(ctx context.Context, tenant string, p place) (Entry, error) {
	read := func() (string, error) { return s.db.Client().HGet(ctx, s.keys.folder(tenant, p), p.name).Result() }
	raw, err := read()
	if errors.Is(err, redis.Nil) {
		raw, err = s.recovery.reread(ctx, read)
	}
	if errors.Is(err, redis.Nil) {
		return Entry{}, ErrNotFound
	}
	if err != nil {
		return Entry{}, fmt.Errorf("files: resolve: %w", err)
	}
	return decodeEntry(raw, p)
}

// Open reads length bytes of a stored file from offset on, or everything after it if length is
// negative. ErrGone says that the hub does not have the bytes.
func (s *Store) Open(ctx context.Context, e Entry, offset, length int64) (io.ReadCloser, error) {
	if !e.Stored() {
		return nil, ErrGone
	}
	return s.storage.OpenSized(ctx, e.Key, e.Size, offset, length)
}

// List returns the files directly in a folder, newest first; those created at the same moment are
// sorted by name.
func (s *Store) List(ctx context.Context, tenant, typ, subfolder string) ([]Entry, error) {
	dir, ok := cleanFolder(subfolder)
	if !ok || !knownType(typ) {
		return nil, nil
	}
	var entries []Entry
	// In steps, because a whole folder in one reply would block Redis.
	scan := s.db.Client().HScan(ctx, s.keys.folder(tenant, place{typ: typ, dir: dir}), 0, "", 1000).Iterator()
	for scan.Next(ctx) {
		p := place{typ: typ, dir: dir, name: scan.Val()}
		if !scan.Next(ctx) {
			break
		}
		e, err := decodeEntry(scan.Val(), p)
		if err != nil {
			// One entry that cannot be read must not hide the others.
			s.log.Warn("skipping a file entry", "error", err)
			continue
		}
		entries = append(entries, e)
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("files: list: %w", err)
	}
	slices.SortFunc(entries, newestFirst)
	// A scan may return a field twice while the hash grows.
	return slices.CompactFunc(entries, func(a, b Entry) bool { return a.Ref == b.Ref }), nil
}

func newestFirst(a, b Entry) int {
	if c := b.Created.Compare(a.Created); c != 0 {
		return c
	}
	switch {
	case a.Ref.Filename < b.Ref.Filename:
		return -1
	case a.Ref.Filename > b.Ref.Filename:
		return 1
	}
	return 0
}

// hasFolder reports whether a subfolder has files; the type's own folder always exists.
func (s *Store) hasFolder(ctx context.Context, tenant string, p place) (bool, error) {
	if p.dir == "" {
		return true, nil
	}
	ok, err := s.db.Client().SIsMember(ctx, s.keys.folders(tenant, p.typ), p.dir).Result()
	if err != nil {
		return false, fmt.Errorf("files: folder: %w", err)
	}
	return ok, nil
}

// Remove removes names; it is not an error if one is not there. Outputs stay on their instances,
// and blobs stay until they are swept, because a job may have them pinned and other names may share
// them.
func (s *Store) Remove(ctx context.Context, tenant string, refs []job.FileRef) error {
	for _, ref := range refs {
		p, ok := placeOf(ref)
		if !ok {
			continue
		}
		if _, _, err := s.remove(ctx, tenant, p, removal{}); err != nil {
			return err
		}
	}
	return nil
}

// removal says which files may be removed; the zero value says all.
type removal struct {
	until  time.Time // last used no later than this
	spared func(Entry) (bool, error)
	trash  string // how long the trash keeps them, in the form that scripts take; "" for not at all
}

// remove removes a name and returns what it stood for; false says that it was spared.
func (s *Store) remove(ctx context.Context, tenant string, p place, r removal) (Entry, bool, error) {
	until := ""
	if !r.until.IsZero() {
		until = fmt.Sprint(r.until.UnixMilli())
	}
	for {
		e, err := s.resolve(ctx, tenant, p)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Entry{}, false, err
		}
		if err == nil && r.spared != nil {
			if spared, err := r.spared(e); err != nil || spared {
				return Entry{}, false, err
			}
		}
		var known, id string
		if e.Source != nil {
			known, id = s.keys.known(tenant, *e.Source), e.Source.id()
		}
		reply, err := s.db.Run(ctx, removeScript,
			s.keys.folder(tenant, p), s.keys.folders(tenant, p.typ), p.dir, p.name, e.raw, known, id, tenant, p.typ, until, r.trash)
		if err != nil {
			return Entry{}, false, fmt.Errorf("files: remove: %w", err)
		}
		if reply[0] != "changed" {
			if reply[0] == "ok" {
				s.copies.forget(nameKey{tenant, p})
			}
			return e, reply[0] == "ok", nil
		}
	}
}

// Uses returns the indexes of outputs, and the members in them that stand for files of a tenant.
// Whoever records that a history entry names them sets their score to the time of its end, in
// milliseconds: see queue.Uses.
func (s *Store) Uses(tenant string, refs []job.FileRef) (indexes, members []string) {
	for _, ref := range refs {
		if p, ok := placeOf(ref); ok && p.typ != job.TypeInput {
			members = append(members, redis.Pack(tenant, p.typ, p.dir, p.name))
		}
	}
	return []string{s.keys.used(job.TypeOutput), s.keys.outputs(tenant)}, members
}

// indexed reads a member of the index of last uses.
func indexed(member string) (tenant string, p place, err error) {
	parts, ok := redis.Unpack(member)
	if !ok || len(parts) != 4 {
		return "", place{}, fmt.Errorf("%w: index of files", errEntry)
	}
	return parts[0], place{typ: parts[1], dir: parts[2], name: parts[3]}, nil
}
