package hub

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
)

// linkPath is below which files lie for those who hold a signed link.
const linkPath = "/hub/files/"

var (
	// errForged is a link that this hub, or one of the same key, has not made.
	errForged = errors.New("hub: the link is not valid")
	// errExpired is a link whose time is over.
	errExpired = errors.New("hub: the link has expired")
)

// signer makes links to files that work for whoever holds them, for a while:
// /hub/files/NAME?exp=SECONDS&sig=TEXT. What signs the name and the time also
// carries, encrypted, whose file it is and in which folder it lies: a link
// that is passed on tells nobody the name of the user.
type signer struct{ seal cipher.AEAD }

// owned is the file of a link.
type owned struct {
	Tenant    string `json:"t"`
	Type      string `json:"y"`
	Subfolder string `json:"s"`
}

// newSigner derives its key from the secret that all hubs of a Redis share.
func newSigner(secret []byte) (*signer, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "comfyhub signed links", 32)
	if err != nil {
		return nil, fmt.Errorf("hub: key of links: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("hub: key of links: %w", err)
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("hub: key of links: %w", err)
	}
	return &signer{seal}, nil
}

// link is the path and query of a link to a tenant's file.
func (s *signer) link(tenant string, ref files.Ref, expires time.Time) (string, error) {
	of, err := json.Marshal(owned{Tenant: tenant, Type: ref.Type, Subfolder: ref.Subfolder})
	if err != nil {
		return "", err
	}
	exp := strconv.FormatInt(expires.Unix(), 10)
	sig := s.seal.Seal(nil, nil, of, signed(ref.Filename, exp)) //nolint:gosec // it makes a nonce of its own
	query := url.Values{"exp": {exp}, "sig": {base64.RawURLEncoding.EncodeToString(sig)}}
	return linkPath + url.PathEscape(ref.Filename) + "?" + query.Encode(), nil
}

// open reads a link. Errors: errForged, errExpired.
func (s *signer) open(name string, query url.Values, now time.Time) (tenant string, ref files.Ref, err error) {
	exp := query.Get("exp")
	sig, err := base64.RawURLEncoding.DecodeString(query.Get("sig"))
	if err != nil {
		return "", files.Ref{}, errForged
	}
	// The tag is compared in constant time.
	plain, err := s.seal.Open(nil, nil, sig, signed(name, exp))
	if err != nil {
		return "", files.Ref{}, errForged
	}
	var of owned
	expires, err := strconv.ParseInt(exp, 10, 64)
	if err != nil || json.Unmarshal(plain, &of) != nil {
		return "", files.Ref{}, errForged
	}
	if now.Unix() >= expires {
		return "", files.Ref{}, errExpired
	}
	return of.Tenant, files.Ref{Type: of.Type, Subfolder: of.Subfolder, Filename: name}, nil
}

// signed is what stands in a link for everybody to read. The time has no colon,
// so that no other name and time give the same text.
func signed(name, exp string) []byte { return []byte(exp + ":" + name) }
