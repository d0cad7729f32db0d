package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
)

// errSum says that a part of a journal is not as it was written.
var errSum = errors.New("a checksum differs")

// restore repeats the commands of a journal and gives the size of what it
// kept: an end that was torn by a crash is cut off. Nothing that was synced
// can be in a torn end, see mark. Damage before that is an error, because what it
// took away nobody knows.
func restore(f *os.File, keys *keyspace, log *slog.Logger) (int64, error) {
	commands, kept := newCommandReader(f), int64(0)
	commands.skip = staysInFile
	r := repeater{file: f, keys: keys}
	var block []written // since MULTI
	inBlock, marked := false, false
	for {
		began := commands.offset
		args, err := commands.next()
		switch {
		case errors.Is(err, io.EOF) && !inBlock:
			return kept, nil
		case errors.Is(err, io.EOF), errors.Is(err, errTorn):
			return kept, cutEnd(f, kept, log)
		case errors.Is(err, errDamaged):
			if torn, terr := tornByCrash(f, kept, marked); terr != nil || !torn {
				return 0, errors.Join(terr, &damagedError{kept, err})
			}
			return kept, cutEnd(f, kept, log)
		case err != nil:
			return 0, err
		}
		switch name := strings.ToUpper(args[0]); {
		case name == "MULTI":
			inBlock, block = true, block[:0]
			continue
		case name == "EXEC":
			for _, w := range block {
				if err := r.repeat(w); err != nil {
					return 0, err
				}
			}
			inBlock = false
		case inBlock:
			block = append(block, written{args, slices.Clone(commands.starts), commands.skipped})
			continue
		case isMark(args, began):
			marked = true
			whole, err := wholeAfter(f, commands.offset, args[2])
			if err == nil && whole {
				break
			}
			behind, berr := markedAfter(f, began)
			switch {
			case err != nil || berr != nil:
				return 0, errors.Join(err, berr)
			case behind:
				return 0, &damagedError{began, errSum}
			}
			return began, cutEnd(f, began, log)
		default:
			if err := r.repeat(written{args, commands.starts, commands.skipped}); err != nil {
				return 0, err
			}
		}
		kept = commands.offset
	}
}

// staysInFile reports whether the argument that comes after args is a large
// string that the keyspace stores: it need not be read.
func staysInFile(args []string, size int) bool {
	if size < largeFrom || len(args) == 0 {
		return false
	}
	switch n := len(args); args[0] {
	case "SET":
		return n == 2
	case "HSET":
		return n >= 3 && n%2 == 1
	}
	return false
}

// written is a command in a file, with the offsets of its arguments and the
// sizes of those that were not read.
type written struct {
	args    []string
	starts  []int64
	skipped map[int]int
}

// repeater does the commands of a journal.
type repeater struct {
	file *os.File
	keys *keyspace
}

func (r repeater) repeat(w written) error {
	c, err := find(w.args)
	if err == nil {
		r.keys.fresh, r.keys.unread = r.keys.fresh[:0], w.skipped
		_, err = c.do(r.keys, w.args)
		r.keys.unread = nil
	}
	if err != nil {
		return fmt.Errorf("the journal's command %.40s: %w", w.args[0], err)
	}
	for _, f := range r.keys.fresh {
		f.blob.moved(r.file, w.starts[f.argument])
	}
	return nil
}

// cutEnd removes a torn end.
func cutEnd(f *os.File, kept int64, log *slog.Logger) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	log.Warn("the journal of the queue ended in the middle of a write, as after a crash; the torn end was cut off",
		"bytes", info.Size()-kept)
	if err := f.Truncate(kept); err != nil {
		return err
	}
	return f.Sync()
}

// tornByZeros reports whether what follows the last whole block is the
// beginning of another one and then zeros: some file systems give a file its
// new length before its data, so that a crash leaves zeros.
func tornByZeros(f *os.File, from int64) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	end, err := trimZeros(f, from, info.Size())
	if err != nil || end == info.Size() {
		return false, err
	}
	commands := newCommandReader(io.NewSectionReader(f, from, end-from))
	for {
		switch _, err := commands.next(); {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, errTorn):
			return true, nil
		case errors.Is(err, errDamaged):
			return false, nil
		default:
			return false, err
		}
	}
}

// trimZeros gives the end of the file without the zeros at its end.
func trimZeros(f io.ReaderAt, from, end int64) (int64, error) {
	buf := make([]byte, 1<<16)
	for end > from {
		n := min(int64(len(buf)), end-from)
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		if kept := len(bytes.TrimRight(buf[:n], "\x00")); kept > 0 {
			return end - n + int64(kept), nil
		}
		end -= n
	}
	return from, nil
}
