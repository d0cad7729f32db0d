package files

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// rememberSources is how long the files of an instance's boot are remembered after the last new
// one. A cached run shows old files again for as long as the instance lives.
const rememberSources = 30 * 24 * time.Hour

// longestRun is how long outputs count as in use before a history entry names them: those of a run
// that is going on or was lost.
const longestRun = 24 * time.Hour

// allotBatch is how many files get their names in one script, during which Redis does nothing else.
const allotBatch = 500

// AllotOutputs gives files that an instance made their names at the hub and returns these in order,
// with what is known about the files: the hub may have the bytes of some.
// A file that turns up again keeps its name; a new one keeps the name it has on its instance if
// that is free, else it gets the next number of its prefix, or " (1)" if it has no counter. Files
// that are allotted together keep their distances, 500 at a time. When AllotOutputs returns, the
// names are written and /view answers for them. A name that was given before is not given again,
// even if Redis has forgotten it: the storage grants the numbers, and ErrStorage says that it cannot
// be asked.
//
// All sources of a call are from one instance and boot. Those that are not [Source.Viewable] keep
// their names and get no entry, which is then the zero one.
func (s *Store) AllotOutputs(ctx context.Context, tenant string, sources []Source) ([]job.FileRef, []Entry, error) {
	refs, known := make([]job.FileRef, 0, len(sources)), make([]Entry, 0, len(sources))
	for batch := range slices.Chunk(sources, allotBatch) {
		names, entries, err := s.allotSome(ctx, tenant, batch)
		if err != nil {
			return nil, nil, err // those that have names keep them, and get them again
		}
		refs, known = append(refs, names...), append(known, entries...)
	}
	return refs, known, nil
}

// allotSome is AllotOutputs for as many files as one script takes.
func (s *Store) allotSome(ctx context.Context, tenant string, sources []Source) ([]job.FileRef, []Entry, error) {
	refs := make([]job.FileRef, len(sources))
	var args []any
	at := map[string]int{}        // source id -> place in the reply
	entries := map[string]Entry{} // by source id
	now := s.now()
	for i, src := range sources {
		wish := src.wish
		src.wish = "" // it is not what the file is
		refs[i] = src.Ref()
		p, ok := placeOf(refs[i])
		if !ok {
			continue
		}
		if src.Instance != sources[0].Instance || src.Boot != sources[0].Boot {
			return nil, nil, fmt.Errorf("files: allot: sources of several instances")
		}
		id := src.id()
		if _, twice := at[id]; twice {
			continue
		}
		at[id] = len(at)
		e := Entry{Size: -1, ETag: src.ETag, Created: now, Source: &src, Unseen: p.typ == job.TypeTemp}
		entry, err := e.encode()
		if err != nil {
			return nil, nil, err
		}
		e.raw, e.plain = entry, true
		entries[id] = e
		if len(args) == 0 {
			args = append(args, s.keys.known(tenant, src), rememberSources.Milliseconds(), tenant, longestRun.Milliseconds(),
				flag(!s.db.Embedded()))
		}
		args = append(args, s.keys.folder(tenant, p), s.keys.numbers(tenant, p), s.keys.folders(tenant, p.typ), p.typ, p.dir, id, cmp.Or(wish, p.name))
		if n, ok := parseNumbered(cmp.Or(wish, p.name)); ok {
			args = append(args, n.prefix, strconv.FormatInt(n.number, 10), strconv.Itoa(n.width), n.suffix)
		} else {
			stem, ext := splitExt(p.name)
			args = append(args, stem, "", "0", ext)
		}
		args = append(args, entry)
	}
	known := make([]Entry, len(sources))
	if len(args) == 0 {
		return refs, known, nil
	}
	reply, err := s.grants.allot(ctx, tenant, args)
	if err != nil {
		return nil, nil, err
	}
	if len(reply) != 1+2*len(at) {
		return nil, nil, fmt.Errorf("files: allot: a reply of %d for %d files", len(reply), len(at))
	}
	for i, src := range sources {
		n, ok := at[src.id()]
		if !ok {
			continue
		}
		p, _ := placeOf(refs[i])
		name, had := reply[1+2*n], reply[2+2*n]
		refs[i].Filename = refs[i].Filename[:len(refs[i].Filename)-len(p.name)] + name
		p.name = name
		e := entries[src.id()]
		if had != "" {
			if e, err = decodeEntry(had, p); err != nil {
				return nil, nil, err
			}
		}
		e.Ref = p.ref()
		known[i] = e
		if key := (nameKey{tenant, p}); !s.copies.has(key) {
			s.copies.note(key, e)
		}
	}
	return refs, known, nil
}

// allot runs the script, and has the storage grant the blocks that it lacks.
func (g grants) allot(ctx context.Context, tenant string, args []any) ([]string, error) {
	refused := map[block]int{}
	for range maxReservations {
		reply, err := g.db.Run(ctx, allotScript, args...)
		if err != nil {
			return nil, fmt.Errorf("files: allot: %w", err)
		}
		if len(reply) < 2 || reply[0] != "reserve" {
			return reply, nil
		}
		blocks, err := blocksOf(reply[2:])
		if err != nil {
			return nil, err
		}
		if err := g.reserve(ctx, tenant, reply[1], blocks, refused); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: it grants no names", ErrStorage)
}

// Copied says where the bytes of an output are now.
type Copied struct {
	// Key is the blob, complete in the storage.
	Key string
	// Size is in bytes.
	Size   int64
	SHA256 string
	// Modified is the time in the instance's Last-Modified; zero if it has none.
	Modified time.Time
	// Began is when the blob began to be written, under a new key. Zero for one that is held.
	Began time.Time
}

// youngFor is how long after its first byte a blob can be given to a file without being held. It is
// well below the age at which a sweep looks at blobs.
const youngFor = holdFor / 2

// SetStored notes that the hub has the bytes of an output. If another hub was faster, its entry
// stands and is returned. ErrNotFound says that the name was removed or given to an upload
// meanwhile; errUnsafe that the blob may have been swept.
func (s *Store) SetStored(ctx context.Context, tenant string, e Entry, c Copied) (Entry, error) {
	p, ok := placeOf(e.Ref)
	if !ok {
		return Entry{}, ErrNotFound
	}
	for {
		if e.Stored() {
			return e, nil
		}
		next := e
		next.Key, next.Size, next.SHA256, next.Modified = c.Key, c.Size, c.SHA256, c.Modified
		if next.Modified.IsZero() {
			next.Modified = s.now()
		}
		if next.ETag == "" {
			next.ETag = makeETag(next.Modified, next.Size)
		}
		raw, err := next.encode()
		if err != nil {
			return Entry{}, err
		}
		began := ""
		if !c.Began.IsZero() {
			began = strconv.FormatInt(s.db.Clock().Now().Add(-time.Since(c.Began)).UnixMilli(), 10)
		}
		reply, err := s.db.Run(ctx, replaceScript, s.keys.folder(tenant, p), p.name, e.raw, raw, tenant, p.typ, p.dir,
			began, youngFor.Milliseconds())
		if err != nil {
			return Entry{}, fmt.Errorf("files: store an output: %w", err)
		}
		switch reply[0] {
		case "ok":
			next.raw = raw
			s.copies.note(nameKey{tenant, p}, next)
			return next, nil
		case "unsafe":
			return Entry{}, errUnsafe
		}
		now, err := s.resolve(ctx, tenant, p)
		if err != nil {
			return Entry{}, err
		}
		if now.Source == nil || *now.Source != *e.Source {
			return Entry{}, ErrNotFound
		}
		e = now
	}
}
