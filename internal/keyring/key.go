package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Purpose is what a key derived from the ring is for.
type Purpose string

// The purposes. The text is part of the derivation: changing it makes everything
// sealed for it worthless.
const (
	Links   Purpose = "comfyhub signed links v2"
	APIKeys Purpose = "comfyhub api keys v2" //nolint:gosec // a label, no secret
	Cookies Purpose = "comfyhub cookies v1"
	Tokens  Purpose = "comfyhub tokens v1" //nolint:gosec // a label, no secret
	// Agents is for key pairs, see [Ring.Pairs]: by these agents know a hub.
	Agents Purpose = "comfyhub hubs to agents v1"
)

const (
	// purposeID derives the id of a key, which is not secret.
	purposeID Purpose = "comfyhub key id v1"
	// purposeRecords derives what signs records, see Records.
	purposeRecords Purpose = "comfyhub records v1"
)

const (
	secretSize = 32 // bytes
	idSize     = 8  // bytes
)

// keyID tells keys apart in sealed values and logs. It is derived from the key, so
// that a damaged key is detected.
type keyID [idSize]byte

func (id keyID) String() string { return hex.EncodeToString(id[:]) }

// key is one key of the ring.
type key struct {
	name    string // of its object in the store
	id      keyID
	created time.Time // to the second
	secret  []byte
	by      *lock // that its object is sealed with; nil for none, guarded by the ring
	aeads   map[Purpose]cipher.AEAD
	mac     []byte // signs records
	marks   int    // what the version that has made it signs, see Records.Adopt
}

func newKey(now time.Time) (*key, error) {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails, see crypto/rand
	k, err := keyOf(secret, now.Truncate(time.Second))
	if err == nil {
		k.marks = marksNow
	}
	return k, err
}

// keyOf derives everything that depends on a key.
func keyOf(secret []byte, created time.Time) (*key, error) {
	k := &key{secret: secret, created: created, aeads: map[Purpose]cipher.AEAD{}}
	id, err := hkdf.Key(sha256.New, secret, nil, string(purposeID), idSize)
	if err != nil {
		return nil, fmt.Errorf("key of the hub: %w", err)
	}
	k.id = keyID(id)
	k.name = strconv.FormatInt(created.Unix(), 10) + "-" + k.id.String()
	for _, p := range [...]Purpose{Links, APIKeys, Cookies, Tokens} {
		material, err := hkdf.Key(sha256.New, secret, nil, string(p), secretSize)
		if err != nil {
			return nil, fmt.Errorf("key of the hub: %w", err)
		}
		if k.aeads[p], err = newAEAD(material); err != nil {
			return nil, err
		}
	}
	if k.mac, err = hkdf.Key(sha256.New, secret, nil, string(purposeRecords), secretSize); err != nil {
		return nil, fmt.Errorf("key of the hub: %w", err)
	}
	return k, nil
}

func newAEAD(material []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(material)
	if err != nil {
		return nil, fmt.Errorf("key of the hub: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("key of the hub: %w", err)
	}
	return aead, nil
}

// nameForm is the form of the names of keys. Other objects, such as a temporary
// file left by a killed hub, are not keys.
var nameForm = regexp.MustCompile(`^[0-9]{1,12}-[0-9a-f]{16}$`)

func isName(name string) bool { return nameForm.MatchString(name) }

// object is a key in the store: either the key itself, or sealed under the
// operator's secret with the id By.
type object struct {
	Version int    `json:"v"`
	Key     []byte `json:"key,omitempty"`
	Sealed  []byte `json:"sealed,omitempty"`
	By      string `json:"by,omitempty"`
	// Signs says that API keys were signed when the key was made, and Marks up to which
	// generation records were; see Records.Adopt.
	Signs bool `json:"signs,omitempty"`
	Marks int  `json:"marks,omitempty"`
}

// objectVersion is raised when an older hub cannot decode a newer key.
const objectVersion = 1

// encode returns the object of a key, sealed unless l is nil.
func (k *key) encode(l *lock) []byte {
	o := object{Version: objectVersion, Signs: k.marks >= MarksOfKeys, Marks: k.marks}
	if l == nil {
		o.Key = k.secret
	} else {
		o.Sealed, o.By = l.aead.Seal(nil, nil, k.secret, []byte(k.name)), l.id //nolint:gosec // this AEAD draws its nonces itself
	}
	body, _ := json.Marshal(o) // cannot fail: numbers, bytes and text
	return append(body, '\n')
}

// decode decodes an object. Errors: ErrLocked, ErrCorrupt.
func decode(name string, body []byte, locks []*lock) (*key, error) {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, ErrCorrupt
	}
	if o.Version != objectVersion {
		return nil, fmt.Errorf("%w, or of a newer version", ErrCorrupt)
	}
	secret := o.Key
	var by *lock
	if len(o.Sealed) > 0 {
		if by = lockOf(locks, o.By); by == nil {
			return nil, ErrLocked
		}
		var err error
		if secret, err = by.aead.Open(nil, nil, o.Sealed, []byte(name)); err != nil {
			return nil, ErrCorrupt
		}
	}
	seconds, _, _ := strings.Cut(name, "-")
	created, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || len(secret) != secretSize {
		return nil, ErrCorrupt
	}
	k, err := keyOf(secret, time.Unix(created, 0))
	if err != nil {
		return nil, err
	}
	if k.name != name {
		return nil, ErrCorrupt
	}
	k.by, k.marks = by, o.Marks
	if o.Signs {
		k.marks = max(k.marks, MarksOfKeys)
	}
	return k, nil
}
