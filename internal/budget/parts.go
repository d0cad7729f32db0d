package budget

import (
	"errors"
	"io"
	"mime/multipart"
)

// maxPartHeader bounds the header of a part of a form, in bytes. The standard library
// would keep ten megabytes of one.
const maxPartHeader = 4 << 10

var errPartHeader = errors.New("budget: the header of a part is too long")

// Parts are those of a form whose headers are bounded.
type Parts struct {
	parts *multipart.Reader
	from  *allowance
}

// NewParts reads the parts of a form.
func NewParts(form io.Reader, boundary string) *Parts {
	from := &allowance{inner: form}
	return &Parts{multipart.NewReader(from, boundary), from}
}

// Next returns the next part, or io.EOF. The part before must have been read to its end, or
// little of it may be left.
func (p *Parts) Next() (*multipart.Part, error) {
	p.from.bounded, p.from.left = true, maxPartHeader
	part, err := p.parts.NextPart()
	p.from.bounded = false
	return part, err
}

// allowance is a reader of which so much may be read while it is bounded.
type allowance struct {
	inner   io.Reader
	bounded bool
	left    int
}

func (a *allowance) Read(p []byte) (int, error) {
	if !a.bounded {
		return a.inner.Read(p)
	}
	if a.left <= 0 {
		return 0, errPartHeader
	}
	n, err := a.inner.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}
