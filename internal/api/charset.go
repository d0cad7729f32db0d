package api

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// errCharset says that a body is not of the charset that its Content-Type names, or that
// nobody knows the charset.
var errCharset = errors.New("api: body is not of its charset")

// charsetWeight is the memory that decoding and parsing take for each byte of a decoded text,
// valueWeight that for each value; see package intake.
const (
	charsetWeight = 8
	valueWeight   = 512
)

// decoded is a JSON body as UTF-8: aiohttp decodes it by the charset of its Content-Type,
// whatever the type is. Its bounds count once more then, as what arrived was no JSON to them.
func (q *Requests) decoded(r *http.Request, share string, c intake.Class, data []byte) ([]byte, error) {
	decode := decoderOf(r)
	if decode == nil {
		return data, nil
	}
	release, err := q.Intake.Reserve(r.Context(), share, charsetWeight*int64(len(data)))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(r.Context(), release) // what was parsed has parts of the text
	text, err := decode(data)
	if err != nil || bytes.ContainsRune(text, utf8.RuneError) { // Python's decoders are strict
		return nil, errCharset
	}
	var meter pyjson.Meter
	_, _ = meter.Write(text)
	switch {
	case meter.Depth() > pyjson.MaxDepth:
		return nil, intake.ErrDeep
	case c.Values > 0 && meter.Values() > c.Values:
		return nil, intake.ErrValues
	}
	if release, err = q.Intake.Reserve(r.Context(), share, valueWeight*int64(meter.Values())); err != nil {
		return nil, err
	}
	context.AfterFunc(r.Context(), release)
	return text, nil
}

// decoderOf decodes the charset of a body; it is nil for UTF-8.
func decoderOf(r *http.Request) func(data []byte) ([]byte, error) {
	_, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(parameters["charset"])), "_", "-")
	if err != nil {
		return nil
	}
	switch name {
	case "", "utf-8", "utf8":
		return nil
	case "utf-8-sig":
		return unicode.UTF8BOM.NewDecoder().Bytes
	case "utf-16", "utf16":
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes
	case "utf-16le", "utf-16-le":
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewDecoder().Bytes
	case "utf-16be", "utf-16-be":
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewDecoder().Bytes
	case "latin-1", "latin1", "iso-8859-1", "iso8859-1":
		return charmap.ISO8859_1.NewDecoder().Bytes // to browsers, and to htmlindex, it is windows-1252
	case "ascii", "us-ascii":
		return fromASCII
	}
	known, err := htmlindex.Get(name)
	if err != nil {
		return func([]byte) ([]byte, error) { return nil, errCharset }
	}
	return known.NewDecoder().Bytes
}

func fromASCII(data []byte) ([]byte, error) {
	if bytes.ContainsFunc(data, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return nil, errCharset
	}
	return data, nil
}
