// Package storedtest has what the last version of the hub stored and sent, for the
// tests that this version understands it; README.md says how it was recorded.
package storedtest

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

//go:embed lastversion.json
var lastVersion []byte

// Recording is what hubs keep and tell each other, and what they answer. Its file
// is text that a reviewer can read: values that are not text are in Base64.
type Recording struct {
	// Version is the commit of the hub that wrote it.
	Version string
	// Keys are all keys of Redis.
	Keys map[string]Key
	// Files are those of the data folder, by their paths in it.
	Files map[string]Blob
	// Published is what went over Redis's channels, in this order.
	Published []Publication
	// Answers are bodies of GET, by tenant and path with a space between.
	Answers map[string]Blob
}

// Key is a key of Redis.
type Key struct {
	Type string
	// Left is how long the key still exists, 0 for ever.
	Left time.Duration `json:",omitempty"`
	// Values are the string, the elements of a list or set, or, in pairs, the
	// fields and values of a hash and the members and scores of a zset.
	Values []Blob
}

// Publication is one message on a channel of Redis.
type Publication struct {
	Channel string
	Payload Blob
}

// LastVersion is the recording of the last version.
func LastVersion() (Recording, error) {
	var r Recording
	return r, json.Unmarshal(lastVersion, &r)
}

// Text is the recording as its file has it.
func (r *Recording) Text() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	err := encoder.Encode(r)
	return text.Bytes(), err
}

// Blob is any bytes, which JSON shows as text if they are text.
type Blob string

const inBase64 = "base64:"

// IsText reports whether the bytes are printable text.
func (b Blob) IsText() bool {
	odd := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }
	return utf8.ValidString(string(b)) && !strings.ContainsFunc(string(b), odd)
}

// MarshalText gives text as it is, and all else in Base64.
func (b Blob) MarshalText() ([]byte, error) {
	if b.IsText() && !strings.HasPrefix(string(b), inBase64) {
		return []byte(b), nil
	}
	return []byte(inBase64 + base64.StdEncoding.EncodeToString([]byte(b))), nil
}

// UnmarshalText reads what MarshalText gives.
func (b *Blob) UnmarshalText(text []byte) error {
	code, found := bytes.CutPrefix(text, []byte(inBase64))
	if !found {
		*b = Blob(text)
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(string(code))
	*b = Blob(data)
	return err
}
