package engine

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"
)

// markKey and sumKey begin the keys of a mark. Nobody has such keys.
const (
	markKey = "comfyhub:synced:"
	sumKey  = "comfyhub:sum:"
)

// mark is a command that changes nothing, at an offset of the journal: all that stands
// before it was on the disk when it was written. Each sync begins with one, which has the
// checksum of what follows. So what a crash can have damaged lies behind the last mark, and
// what is damaged before one was lost by the disk. It is a command that every version of the
// hub and Redis itself know. A mark that a rewrite has copied to another offset counts for
// nothing.
func mark(offset int64, data []byte) []byte {
	return appendCommand(nil, "DEL", markKey+strconv.FormatInt(offset, 10), sumOf(int64(len(data)), crc32.ChecksumIEEE(data)))
}

// sumOf is as long for any data: a rewrite must know where what is not written yet will end.
func sumOf(size int64, sum uint32) string { return fmt.Sprintf("%s%012d:%08x", sumKey, size, sum) }

// markHead is how a mark at an offset begins.
func markHead(offset int64) []byte {
	place := markKey + strconv.FormatInt(offset, 10)
	return fmt.Appendf(nil, "*3\r\n$3\r\nDEL\r\n$%d\r\n%s\r\n", len(place), place)
}

// isMark reports whether a command that begins at an offset is a mark.
func isMark(args []string, offset int64) bool {
	return len(args) == 3 && args[0] == "DEL" && args[1] == markKey+strconv.FormatInt(offset, 10)
}

// wholeAfter reports whether what follows a mark, from an offset on, is as it was written.
// If another mark follows, it was synced, and is not read again.
func wholeAfter(f *os.File, from int64, sum string) (bool, error) {
	digits, _, _ := strings.Cut(strings.TrimPrefix(sum, sumKey), ":")
	size, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || size < 0 {
		return false, nil //nolint:nilerr // no mark that was written whole
	}
	head := markHead(from + size)
	next := make([]byte, len(head))
	if _, err := f.ReadAt(next, from+size); err == nil && bytes.Equal(next, head) {
		return true, nil
	}
	hash := crc32.NewIEEE()
	n, err := io.Copy(hash, io.NewSectionReader(f, from, size))
	return err == nil && sum == sumOf(n, hash.Sum32()), err
}

// markedAfter reports whether a mark begins behind an offset.
func markedAfter(f *os.File, from int64) (bool, error) {
	beginning := []byte("*3\r\n$3\r\nDEL\r\n")
	const most = 96 // the head of a mark is shorter
	buf := make([]byte, 1<<20)
	for at := from + 1; ; {
		n, err := f.ReadAt(buf, at)
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return false, err
		}
		part := buf[:n]
		for i := 0; ; i++ {
			next := bytes.Index(part[i:], beginning)
			if next < 0 {
				break
			}
			i += next
			if bytes.HasPrefix(part[i:], markHead(at+int64(i))) {
				return true, nil
			}
		}
		if last {
			return false, nil
		}
		at += int64(n - most)
	}
}

// tornByCrash reports whether damage behind the last whole command, at from, can have come
// from a crash: marked says that there is a mark before it, and there is none behind it.
func tornByCrash(f *os.File, from int64, marked bool) (bool, error) {
	if marked {
		behind, err := markedAfter(f, from)
		return !behind, err
	}
	return tornByZeros(f, from) // an older version has written it
}
