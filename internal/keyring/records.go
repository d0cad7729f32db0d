package keyring

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrUnsigned means that a record bears no mark at all: a version before the marks has
// made it, or somebody else.
var ErrUnsigned = errors.New("not signed by the hub")

// Records signs small records that lie where others may be able to write, such as Redis:
// who can change them there must not gain by it. A record is a JSON object. Its mark is
// one more member at its end, so that whoever does not know marks can still read the
// record. The mark covers all other bytes, the kind of the record and its place, so that
// neither a changed record nor one that was copied elsewhere verifies.
//
// A mark does not prevent that an old record is put back: see [Records.Revoke]. Nor does it
// prevent that a record is deleted: what must not be missing belongs on a [Shelf].
//
// A mark is valid while its key is in the ring. Whoever keeps records signs those again
// that Verify calls stale, at least once in [Keep].
type Records struct {
	ring *Ring
	kind string
}

// Records returns the signer of one kind of records. The kind is part of every mark and
// must never change; it consists of letters.
func (r *Ring) Records(kind string) *Records { return &Records{r, kind} }

const (
	markVersion = 1
	markSize    = headSize + sha256.Size
	markMember  = `"mark":"`
)

// Sign returns a record with its mark. place is where the record lies, such as the names of
// the key and of the field. Errors: ErrUnavailable.
func (r *Records) Sign(place string, record []byte) ([]byte, error) {
	k := r.ring.sealing()
	if k == nil {
		return nil, ErrUnavailable
	}
	record = bytes.TrimSpace(record)
	if !json.Valid(record) || record[0] != '{' {
		return nil, errors.New("keyring: a record is not a JSON object")
	}
	mark := append([]byte{markVersion}, k.id[:]...)
	mark = append(mark, r.mac(k, place, record)...)
	signed := bytes.Clone(record[:len(record)-1])
	if len(bytes.TrimSpace(signed)) > 1 {
		signed = append(signed, ',')
	}
	signed = append(signed, markMember...)
	signed = base64.RawURLEncoding.AppendEncode(signed, mark)
	return append(signed, `"}`...), nil
}

// Verify returns the record without its mark. stale says that its key has been replaced and
// will be deleted: sign the record again. Like Open of a [Sealer], it reads the ring again
// for an unknown key, but not too often. Errors: ErrUnsigned; ErrForged, also if the key was
// deleted; ErrUnavailable.
func (r *Records) Verify(ctx context.Context, place string, signed []byte) (record []byte, stale bool, err error) {
	record, mark, err := split(signed)
	if err != nil {
		return nil, false, err
	}
	id := keyID(mark[1:headSize])
	k := r.ring.find(id)
	if k == nil {
		if k, err = r.ring.ask(ctx, purposeRecords, id); err != nil {
			return nil, false, err
		}
	}
	newest := r.ring.sealing()
	switch {
	case newest == nil:
		return nil, false, ErrUnavailable
	case k == nil:
		return nil, false, fmt.Errorf("%w: its key is not known", ErrForged)
	case !hmac.Equal(mark[headSize:], r.mac(k, place, record)):
		return nil, false, ErrForged
	}
	return record, k.id != newest.id && k.created.Before(newest.created), nil
}

// split takes the mark off a signed record.
func split(signed []byte) (record, mark []byte, err error) {
	at := bytes.LastIndex(signed, []byte(markMember))
	if at < 1 || !bytes.HasSuffix(signed, []byte(`"}`)) {
		return nil, nil, ErrUnsigned
	}
	before, text := signed[:at], signed[at+len(markMember):]
	mark, err = base64.RawURLEncoding.Strict().DecodeString(string(text[:len(text)-len(`"}`)]))
	if err != nil || len(mark) != markSize || mark[0] != markVersion {
		return nil, nil, ErrForged
	}
	record = append(bytes.Clone(bytes.TrimSuffix(before, []byte(","))), '}')
	if !json.Valid(record) || record[0] != '{' {
		return nil, nil, ErrForged
	}
	return record, mark, nil
}

// mac is the code of a record under a key. Each part is preceded by its length, so that
// nothing can move from one to the other.
func (r *Records) mac(k *key, place string, record []byte) []byte {
	code := hmac.New(sha256.New, k.mac)
	for _, part := range [][]byte{[]byte(r.kind), []byte(place), record} {
		_, _ = code.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // never fails
		_, _ = code.Write(part)
	}
	return code.Sum(nil)
}
