package engine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Bounds of a command in a journal; more is damage, not data. They keep a
// damaged length from asking for all memory.
const (
	maxCommandArgs = 1 << 20
	maxBulk        = 512 << 20 // as Redis's proto-max-bulk-len
)

// errTorn says that a journal ends in the middle of a command, as it does
// after a crash; errDamaged that something is wrong before its end.
var (
	errTorn    = errors.New("ends in the middle of a command")
	errDamaged = errors.New("not a command")
)

// appendCommand appends a command in Redis's wire format, which is also that
// of its append-only files.
func appendCommand(dst []byte, args ...string) []byte {
	dst = appendHead(dst, '*', len(args))
	for _, arg := range args {
		dst = appendBulk(dst, arg)
	}
	return dst
}

// appendHead appends a line such as "*3\r\n".
func appendHead(dst []byte, kind byte, n int) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, "\r\n"...)
}

func appendBulk(dst []byte, text string) []byte {
	dst = appendHead(dst, '$', len(text))
	dst = append(dst, text...)
	return append(dst, "\r\n"...)
}

// commandReader reads commands and knows where each one ends.
type commandReader struct {
	r      *bufio.Reader
	offset int64
	// starts are the offsets of the arguments of the last command.
	starts []int64
	// skip says that an argument stays where it is: it is read as an empty
	// string, and skipped has its size. nil reads all.
	skip    func(args []string, size int) bool
	skipped map[int]int // size by position
}

func newCommandReader(r io.Reader) *commandReader {
	return &commandReader{r: bufio.NewReaderSize(r, 1<<16)}
}

// next gives the next command. At the end of the data it gives io.EOF, in the
// middle of a command errTorn, for anything else errDamaged.
func (c *commandReader) next() ([]string, error) {
	n, err := c.length('*', maxCommandArgs)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errDamaged
	}
	args := make([]string, 0, min(n, 64))
	c.starts, c.skipped = c.starts[:0], nil
	for range n {
		size, err := c.length('$', maxBulk)
		if err != nil {
			return nil, inside(err)
		}
		var arg string
		if c.skip != nil && c.skip(args, size) {
			if c.skipped == nil {
				c.skipped = map[int]int{}
			}
			c.skipped[len(args)] = size
			err = c.pass(size)
		} else {
			arg, err = c.bulk(size)
		}
		if err != nil {
			return nil, inside(err)
		}
		args = append(args, arg)
		c.starts = append(c.starts, c.offset-int64(size)-2)
	}
	return args, nil
}

// inside turns an end of the data into one in the middle of a command.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return errTorn
	}
	return err
}

// length reads a line such as "*3\r\n".
func (c *commandReader) length(kind byte, limit int) (int, error) {
	line, err := c.r.ReadSlice('\n')
	c.offset += int64(len(line))
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		return 0, io.EOF
	case errors.Is(err, io.EOF):
		return 0, errTorn
	case errors.Is(err, bufio.ErrBufferFull):
		return 0, errDamaged
	case err != nil:
		return 0, err
	}
	digits, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || len(digits) < 2 || digits[0] != kind {
		return 0, errDamaged
	}
	n := 0
	for _, d := range digits[1:] {
		if d < '0' || d > '9' {
			return 0, errDamaged
		}
		if n = n*10 + int(d-'0'); n > limit {
			return 0, fmt.Errorf("%w: length over %d", errDamaged, limit)
		}
	}
	return n, nil
}

// firstRead is how much of a bulk string is made room for before it is read, in
// bytes, so that a damaged length costs nothing.
const firstRead = 1 << 16

// bulk reads size bytes and the line end.
func (c *commandReader) bulk(size int) (string, error) {
	data := make([]byte, min(size+2, firstRead))
	for read := 0; ; {
		n, err := io.ReadFull(c.r, data[read:])
		read += n
		c.offset += int64(n)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return "", io.EOF
		case err != nil:
			return "", err
		}
		if read == size+2 {
			break
		}
		data = append(data, make([]byte, min(size+2-read, read))...)
	}
	if data[size] != '\r' || data[size+1] != '\n' {
		return "", errDamaged
	}
	return string(data[:size]), nil
}

// pass goes over size bytes and the line end.
func (c *commandReader) pass(size int) error {
	n, err := c.r.Discard(size)
	c.offset += int64(n)
	if err != nil {
		return err
	}
	var end [2]byte
	n, err = io.ReadFull(c.r, end[:])
	c.offset += int64(n)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.EOF
	case err != nil:
		return err
	case end != [2]byte{'\r', '\n'}:
		return errDamaged
	}
	return nil
}
