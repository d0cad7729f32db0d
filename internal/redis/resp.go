package redis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Bounds of a command in a journal; anything larger is damage, not data. They keep
// a damaged length from allocating all memory.
const (
	maxCommandArgs = 1 << 20
	maxBulk        = 512 << 20 // same as Redis's proto-max-bulk-len
)

// errTorn means that a journal ends in the middle of a command, as after a crash;
// errDamaged that something before its end is wrong.
var (
	errTorn    = errors.New("ends in the middle of a command")
	errDamaged = errors.New("not a command")
)

// appendCommand appends a command in Redis's wire format, which is also the format
// of its append-only files.
func appendCommand[S ~string | ~[]byte](dst []byte, args ...S) []byte {
	dst = append(dst, '*')
	dst = strconv.AppendInt(dst, int64(len(args)), 10)
	dst = append(dst, "\r\n"...)
	for _, arg := range args {
		dst = append(dst, '$')
		dst = strconv.AppendInt(dst, int64(len(arg)), 10)
		dst = append(dst, "\r\n"...)
		dst = append(dst, arg...)
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// commandReader reads commands and tracks where each one ends.
type commandReader struct {
	r      *bufio.Reader
	offset int64
}

func newCommandReader(r io.Reader) *commandReader {
	return &commandReader{r: bufio.NewReaderSize(r, 1<<16)}
}

// next returns the next command. At the end of the data it returns io.EOF, in the
// middle of a command errTorn, and for anything else errDamaged.
func (c *commandReader) next() ([]string, error) {
	n, err := c.length('*', maxCommandArgs)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errDamaged
	}
	args := make([]string, 0, min(n, 64))
	for range n {
		size, err := c.length('$', maxBulk)
		if err != nil {
			return nil, inside(err)
		}
		arg, err := c.bulk(size)
		if err != nil {
			return nil, inside(err)
		}
		args = append(args, arg)
	}
	return args, nil
}

// inside converts an end of the data into one in the middle of a command.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return errTorn
	}
	return err
}

// length reads a line such as "*3\r
// ".
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

// bulk reads size bytes and the line end. Its buffer grows with the data, so that a
// damaged length costs nothing.
func (c *commandReader) bulk(size int) (string, error) {
	var buf bytes.Buffer
	buf.Grow(min(size, 1<<16) + 2)
	n, err := io.CopyN(&buf, c.r, int64(size)+2)
	c.offset += n
	if err != nil {
		return "", err
	}
	data := buf.Bytes()
	if data[size] != '\r' || data[size+1] != '\n' {
		return "", errDamaged
	}
	return string(data[:size]), nil
}
