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
//
// Many methods: one method per script on the files' names, which all keep the same counts and
// index; there is no state to divide.
type Store struct {
	db      *redis.DB
	storage *Storage
	spool   string
	log     *slog.Logger
	now     func() time.Time
	limits  func(tenant string) Limits
	trash   func() time.Duration
	pushed  func(bytes int64) // to instances
	fetched func(bytes int64) // from them
	copies  *copies           // nil with the embedded server
	heal    *healing
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
	s := &Store{db: db, heal: &healing{turn: semaphore.NewWeighted(1)}, storage: storage, spool: o.SpoolDir, log: o.Logger, now: o.Now, limits: o.Limits, trash: o.Trash}
	if !db.Embedded() {
		s.copies = newCopies()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.pushed, s.fetched = o.Pushed, o.Fetched
	if s.pushed == nil {
		s.pushed = func(int64) {}
	}
	if s.fetched == nil {
		s.fetched = func(int64) {}
	}
	if s.trash == nil {
		s.trash = func() time.Duration { return 0 }
	}
	if s.limits == nil {
		s.limits = func(string) Limits { return Limits{} }
	}
	if s.now == nil {
		s.now = db.Clock().Now
	}
	return s
}

// Resolve finds a file by its name, or ErrNotFound.
func (s *Store) Resolve(ctx context.Context, tenant string, ref job.FileRef) (Entry, error) {
	p, ok := placeOf(ref)
	if !ok {
		return Entry{}, ErrNotFound
	}
	return s.resolve(ctx, tenant, p)
}

func (s *Store) resolve(ctx context.Context, tenant string, p place) (Entry, error) {
	raw, err := s.db.Client().HGet(ctx, s.folderKey(tenant, p), p.name).Result()
	if errors.Is(err, redis.Nil) && s.copies.has(nameKey{tenant, p}) {
		// Redis may have lost it, or another hub may have removed it.
		if err := s.Heal(ctx); err != nil {
			return Entry{}, err
		}
		raw, err = s.db.Client().HGet(ctx, s.folderKey(tenant, p), p.name).Result()
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
	scan := s.db.Client().HScan(ctx, s.folderKey(tenant, place{typ: typ, dir: dir}), 0, "", 1000).Iterator()
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

// Folders returns the subfolders of a type that have files, in order; "" is the folder of the type
// itself.
func (s *Store) Folders(ctx context.Context, tenant, typ string) ([]string, error) {
	folders, err := s.db.Client().SMembers(ctx, s.foldersKey(tenant, typ)).Result()
	if err != nil {
		return nil, fmt.Errorf("files: folders: %w", err)
	}
	slices.Sort(folders)
	return folders, nil
}

// hasFolder reports whether a subfolder has files; the type's own folder always exists.
func (s *Store) hasFolder(ctx context.Context, tenant string, p place) (bool, error) {
	if p.dir == "" {
		return true, nil
	}
	ok, err := s.db.Client().SIsMember(ctx, s.foldersKey(tenant, p.typ), p.dir).Result()
	if err != nil {
		return false, fmt.Errorf("files: folder: %w", err)
	}
	return ok, nil
}
