package files

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Entry is what the hub knows about a named file.
type Entry struct {
	// Ref is the file's name in its clean spelling.
	Ref job.FileRef
	// Key is the blob in the storage; empty while the bytes are only on the
	// instance that made them.
	Key string
	// Size is in bytes, -1 when not known.
	Size int64
	// SHA256 of the content in lowercase hex, empty when not known.
	SHA256 string
	// ETag is quoted, as in the header: "<mtime ns>-<size>", both in hex. An output has its
	// instance's, so that it stays the same when the file is copied.
	ETag string
	// Modified is the time in Last-Modified; zero when not known.
	Modified time.Time
	// Created is when the name was given.
	Created time.Time
	// Source is where an output came from; nil for uploads.
	Source *Source
	// Unseen says of a preview that nobody has read it yet. Whether an upload or a result was read is
	// not known.
	Unseen bool

	raw string // as stored, for compare and set
	// plain says that raw has only members that this hub knows.
	plain bool
}

// Stored reports whether the hub has the bytes.
func (e Entry) Stored() bool { return e.Key != "" }

// Source is a file on an instance. Two files are the same if all fields are equal.
type Source struct {
	// Instance and Boot say which process made the file.
	Instance string `json:"instance"`
	Boot     string `json:"boot"`

	Type      string `json:"type"`
	Subfolder string `json:"subfolder"`
	Filename  string `json:"filename"`
	// ETag is what the instance's /view says, quoted; empty if it says none.
	ETag string `json:"etag"`

	// wish is the name that the file gets at the hub if that is free; empty for the one that it has on its
	// instance.
	wish string
}

// Ref is the file's name on its instance.
func (s Source) Ref() job.FileRef {
	return job.FileRef{Type: s.Type, Subfolder: s.Subfolder, Filename: s.Filename}
}

// Viewable reports whether /view would show a file of this name. Outputs can contain things that
// only look like files, such as absolute paths; they are shown as they are and never copied.
func (s Source) Viewable() bool {
	_, ok := placeOf(s.Ref())
	return ok
}

// id returns a short text that is the same for equal sources of one instance and boot.
func (s Source) id() string {
	sum := sha256.Sum256([]byte(redis.Pack(s.Type, s.Subfolder, s.Filename, s.ETag)))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// storedEntry is the form of an Entry in Redis. The scripts look for the members "key", "sha256"
// and "source_id" as text, which works because their values contain no quotes, and quotes inside
// other strings are escaped.
type storedEntry struct {
	Version  int     `json:"v"`
	Key      string  `json:"key"`
	Size     int64   `json:"size"`
	SHA256   string  `json:"sha256"`
	ETag     string  `json:"etag"`
	Modified int64   `json:"modified"` // Unix nanoseconds, 0 when not known
	Created  int64   `json:"created"`  // Unix milliseconds
	SourceID string  `json:"source_id"`
	Source   *Source `json:"source,omitempty"`
	Unseen   bool    `json:"unseen,omitempty"`
}

const entryVersion = 1

var errEntry = errors.New("files: entry cannot be read")

// encode writes the entry; members of the stored form that this hub does not know are kept, as a
// newer hub may have written them.
func (e Entry) encode() (string, error) {
	s := storedEntry{
		Version: entryVersion, Key: e.Key, Size: e.Size, SHA256: e.SHA256, ETag: e.ETag,
		Created: e.Created.UnixMilli(), Source: e.Source, Unseen: e.Unseen,
	}
	if !e.Modified.IsZero() {
		s.Modified = e.Modified.UnixNano()
	}
	if e.Source != nil {
		s.SourceID = e.Source.id()
	}
	data, err := json.Marshal(s)
	if err != nil || e.raw == "" || e.plain {
		return string(data), err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(e.raw), &members); err != nil {
		return "", fmt.Errorf("%w: %w", errEntry, err)
	}
	delete(members, "source")
	delete(members, "unseen")
	if err := json.Unmarshal(data, &members); err != nil {
		return "", err
	}
	data, err = json.Marshal(members)
	return string(data), err
}

func decodeEntry(raw string, p place) (Entry, error) {
	var s storedEntry
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", errEntry, err)
	}
	e := Entry{
		Ref: p.ref(), Key: s.Key, Size: s.Size, SHA256: s.SHA256, ETag: s.ETag,
		Created: time.UnixMilli(s.Created), Source: s.Source, Unseen: s.Unseen, raw: raw,
	}
	if s.Modified != 0 {
		e.Modified = time.Unix(0, s.Modified)
	}
	return e, nil
}

// makeETag builds an ETag as aiohttp does for a file on disk.
func makeETag(modified time.Time, size int64) string {
	return `"` + strconv.FormatInt(modified.UnixNano(), 16) + "-" + strconv.FormatInt(size, 16) + `"`
}
