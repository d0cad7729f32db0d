package redis

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// restore repeats the commands of a journal and returns the size of the valid part.
// An end that was torn by a crash is cut off; nothing that was synced can be in it.
// Damage before the end is an error, because there is no telling what was lost.
func restore(f *os.File, e *embedded, log *slog.Logger) (int64, error) {
	commands, kept := newCommandReader(f), int64(0)
	var block [][]string // since MULTI
	inBlock := false
	for {
		args, err := commands.next()
		switch {
		case errors.Is(err, io.EOF) && !inBlock:
			return kept, nil
		case errors.Is(err, io.EOF), errors.Is(err, errTorn):
			return kept, cutEnd(f, kept, log)
		case errors.Is(err, errDamaged):
			if torn, zerr := tornByZeros(f, kept); zerr != nil || !torn {
				return 0, errors.Join(zerr, fmt.Errorf(
					"damaged after byte %d; to go on with what stands before, cut the file there: %w", kept, err))
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
			for _, args := range block {
				if err := e.repeat(args); err != nil {
					return 0, err
				}
			}
			inBlock = false
		case inBlock:
			block = append(block, args)
			continue
		default:
			if err := e.repeat(args); err != nil {
				return 0, err
			}
		}
		kept = commands.offset
	}
}

// repeat executes a command of the journal.
func (e *embedded) repeat(args []string) error {
	if strings.EqualFold(args[0], "PEXPIREAT") {
		e.expires.Store(true)
	}
	if err := e.do(args...); err != nil {
		return fmt.Errorf("the journal's command %s: %w", args[0], err)
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

// tornByZeros reports whether the last complete block is followed by the start of
// another one and then zeros: some file systems set a file's new length before
// writing its data, so that a crash leaves zeros.
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

// trimZeros returns the offset at which the trailing zeros of a file begin.
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
