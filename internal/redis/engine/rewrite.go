package engine

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/tidwall/btree"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// Endings of files that are being written: by a rewrite, and by one that
// starts over, which may begin while the other goes on.
const (
	newSuffix  = ".new"
	overSuffix = ".over"
)

const (
	// dumpBatch is how many elements one command of a dump carries.
	dumpBatch = 128
	// closeEnough is how far behind a rewritten file may be when commits wait
	// for the rest, in bytes.
	closeEnough = 256 << 10
	// syncEvery is how much of a new file is handed to the disk at a time, in
	// bytes. A file that the system keeps in memory until the end would go to the
	// disk all at once, and commits would wait for that.
	syncEvery = 1 << 20
	// retryRewrite is the pause after a rewrite that failed, on a full disk
	// for example.
	retryRewrite = time.Minute
)

// errStopped says that the engine was closed during a rewrite; errOvertaken
// that the journal began a new file meanwhile.
var (
	errStopped   = errors.New("stopped")
	errOvertaken = errors.New("overtaken by a failed write")
)

// shorten rewrites the file when it has doubled.
func (j *journal) shorten(stop <-chan struct{}) error {
	j.files.Lock()
	due := j.size >= shortenFrom && j.size >= 2*j.base && !j.unsure && time.Now().After(j.retry)
	j.files.Unlock()
	if !due {
		return nil
	}
	err := j.rewrite(stop)
	if err == nil || errors.Is(err, errStopped) {
		return nil
	}
	j.files.Lock()
	defer j.files.Unlock()
	j.retry = time.Now().Add(retryRewrite)
	return err
}

// rewrite replaces the file by one that makes what there is now. Scripts go on
// meanwhile, and so do commits, but for the moment of the change. One rewrite
// goes on at a time.
func (j *journal) rewrite(stop <-chan struct{}) (err error) {
	snapshot, from, err := j.begin()
	if err != nil {
		return err
	}
	next, err := newDump(j.folder, journalFile+newSuffix)
	if err == nil {
		if err = next.all(snapshot, stop); err == nil {
			err = next.sync()
		}
		if err == nil {
			err = j.change(next, from, stop)
		}
	}
	j.files.Lock()
	defer j.files.Unlock()
	j.rewriting, j.tail = false, nil
	if err != nil && next != nil {
		next.discard()
	}
	return err
}

// begin takes the snapshot and says from which offset of the file on the new
// one needs what the file has.
func (j *journal) begin() (*btree.Map[string, *value], int64, error) {
	j.files.Lock()
	defer j.files.Unlock()
	if j.unsure || j.rewriting {
		return nil, 0, errOvertaken
	}
	j.engine.mu.Lock()
	defer j.engine.mu.Unlock()
	snapshot := j.engine.keys.snapshot()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rewriting, j.failed, j.tail = true, false, nil
	from := j.size
	if len(j.pending.data) > 0 {
		from += int64(len(mark(j.size, j.pending.data)) + len(j.pending.data))
	}
	return snapshot, from, nil
}

// change copies what was committed since the snapshot, from an offset of the
// file on, and puts the new file in the place of the old one.
func (j *journal) change(next *dump, from int64, stop <-chan struct{}) error {
	shift := next.size - from // from an offset in the old file to one in the new
	at := from
	for {
		j.files.Lock()
		size, file, failed := j.size, j.file, j.failed
		if failed {
			j.files.Unlock()
			return errOvertaken
		}
		if size-at <= closeEnough {
			break // with the lock
		}
		j.files.Unlock()
		if err := stopped(stop); err != nil {
			return err
		}
		if err := next.copy(file, at, size-at); err != nil {
			return err
		}
		at = size
		if err := next.sync(); err != nil {
			return err
		}
	}
	defer j.files.Unlock()
	if j.size < from { // what was pending at the snapshot is not in the file yet
		if err := j.flush(); err != nil {
			return err
		}
	}
	if err := next.copy(j.file, at, j.size-at); err != nil {
		return err
	}
	if err := next.sync(); err != nil {
		return err
	}
	return j.replace(next, func() {
		for _, l := range j.tail {
			if l.offset >= from {
				l.blob.moved(next.file, l.offset+shift)
			}
		}
	})
}

// replace puts a new file in the place of the old one; when the process dies,
// either is there, whole. The caller holds files.
func (j *journal) replace(next *dump, repoint func()) error {
	if err := j.folder.Rename(next.name, journalFile); err != nil {
		return err
	}
	for _, l := range next.blobs {
		l.blob.moved(next.file, l.offset)
	}
	repoint()
	// The old file closes itself when nothing points into it any more.
	j.file, j.size, j.base = next.file, next.size, next.size
	if err := durable.SyncFolder(j.folder.Name()); err != nil {
		// After a crash the old file may be back under the name.
		j.unsure = true
		return nil
	}
	j.unsure = false
	return nil
}

// startOver writes a new file after the disk has failed. Commits wait: there
// is no file that they could be in. The caller holds files.
func (j *journal) startOver() error {
	j.engine.mu.Lock()
	snapshot := j.engine.keys.snapshot()
	held, upTo := j.take()
	j.engine.mu.Unlock()
	next, err := newDump(j.folder, journalFile+overSuffix)
	if err == nil {
		if err = next.all(snapshot, nil); err == nil {
			err = next.sync()
		}
		if err == nil {
			err = j.replace(next, func() {})
		}
	}
	if err != nil {
		j.putBack(held)
		if next != nil {
			next.discard()
		}
		return err
	}
	if j.unsure {
		return errors.New("the folder cannot be synced")
	}
	j.synced = upTo
	return nil
}

// dump is a new file.
type dump struct {
	folder *os.Root
	name   string
	file   *os.File
	out    *bufio.Writer
	size   int64
	synced int64 // of size, about what is on the disk
	blobs  []located
}

func newDump(folder *os.Root, name string) (*dump, error) {
	f, err := folder.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &dump{folder: folder, name: name, file: f, out: bufio.NewWriterSize(f, 1<<18)}, nil
}

func (d *dump) discard() {
	d.file.Close()
	_ = d.folder.Remove(d.name)
}

func (d *dump) sync() error {
	if err := d.out.Flush(); err != nil {
		return err
	}
	d.synced = d.size
	return d.file.Sync()
}

// pace syncs what has piled up.
func (d *dump) pace() error {
	if d.size-d.synced < syncEvery {
		return nil
	}
	return d.sync()
}

// copy appends a part of another file.
func (d *dump) copy(from *os.File, offset, length int64) error {
	for end := offset + length; offset < end; {
		n, err := io.Copy(d.out, io.NewSectionReader(from, offset, min(end-offset, syncEvery)))
		offset, d.size = offset+n, d.size+n
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = d.pace()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// all writes commands that make every key of a snapshot.
func (d *dump) all(snapshot *btree.Map[string, *value], stop <-chan struct{}) (err error) {
	n := 0
	snapshot.Scan(func(key string, v *value) bool {
		if n++; n%256 == 0 {
			if err = stopped(stop); err != nil {
				return false
			}
		}
		if err = d.key(key, v); err == nil {
			err = d.pace()
		}
		return err == nil
	})
	return err
}

// key writes the commands that make one key.
func (d *dump) key(key string, v *value) error {
	batch := batch{dump: d, key: key}
	switch v.kind {
	case kindString:
		batch.open("SET", 1)
		batch.add(v.text)
	case kindHash:
		batch.open("HSET", 2)
		v.hash.Scan(func(field string, text datum) bool {
			batch.add(datum{text: field}, text)
			return batch.err == nil
		})
	case kindList:
		batch.open("RPUSH", 1)
		for _, item := range v.list {
			batch.add(datum{text: item})
		}
	case kindSet:
		batch.open("SADD", 1)
		v.set.Scan(func(member string, _ struct{}) bool {
			batch.add(datum{text: member})
			return batch.err == nil
		})
	case kindZset:
		batch.open("ZADD", 2)
		v.zset.order.Scan(func(item scored) bool {
			batch.add(datum{text: decimalText(item.score)}, datum{text: item.member})
			return batch.err == nil
		})
	}
	batch.flush()
	if v.expires != 0 && batch.err == nil {
		batch.open("PEXPIREAT", 1)
		batch.add(datum{text: strconv.FormatInt(v.expires, 10)})
		batch.flush()
	}
	return batch.err
}

// batch collects the elements of one command.
type batch struct {
	dump  *dump
	key   string
	name  string
	each  int // arguments an element
	items []datum
	err   error
}

func (b *batch) open(name string, each int) { b.name, b.each, b.items = name, each, b.items[:0] }

func (b *batch) add(element ...datum) {
	b.items = append(b.items, element...)
	if len(b.items) >= dumpBatch*b.each {
		b.flush()
	}
}

func (b *batch) flush() {
	if len(b.items) == 0 || b.err != nil {
		return
	}
	d := b.dump
	head := appendHead(nil, '*', 2+len(b.items))
	head = appendBulk(appendBulk(head, b.name), b.key)
	b.err = d.write(head)
	for _, item := range b.items {
		if b.err == nil {
			b.err = d.write(appendHead(nil, '$', item.size()))
		}
		if b.err != nil {
			return
		}
		if b.err = d.datum(item); b.err == nil {
			b.err = d.writeString("\r\n")
		}
	}
	b.items = b.items[:0]
}

// datum writes a string that is kept.
func (d *dump) datum(item datum) error {
	if item.blob == nil {
		return d.writeString(item.text)
	}
	d.blobs = append(d.blobs, located{item.blob, d.size})
	d.size += int64(item.blob.size)
	return item.blob.writeTo(d.out)
}

func (d *dump) write(p []byte) error {
	n, err := d.out.Write(p)
	d.size += int64(n)
	return err
}

func (d *dump) writeString(s string) error {
	n, err := d.out.WriteString(s)
	d.size += int64(n)
	return err
}

// stopped gives errStopped once the engine is being closed.
func stopped(stop <-chan struct{}) error {
	select {
	case <-stop:
		return errStopped
	default:
		return nil
	}
}
