package links

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
)

const (
	// LinkLife is how long a link works unless something else is asked for.
	LinkLife = 24 * time.Hour
	// MaxLinkLife is the longest that can be asked for.
	MaxLinkLife = 7 * 24 * time.Hour
	// clockSkew is how far apart the clocks of hubs may be.
	clockSkew = 5 * time.Minute
)

var (
	// ErrLinkForged is a link that was not made by this hub, or one with the same key.
	ErrLinkForged = errors.New("hub: the link is not valid")
	// ErrLinkExpired is a link whose time is over.
	ErrLinkExpired = errors.New("hub: the link has expired")
	// ErrLinkTooLong is a link that would work for longer than any may. It is asked
	// when a link is opened, too: a key that was stolen must not give links
	// that work for years.
	ErrLinkTooLong = errors.New("hub: the link would be valid for too long")
)

// signer makes links to files that work for whoever has them, for a while:
// NAME?exp=SECONDS&sig=TEXT, below a path of the API's. What signs the name and the time also
// carries, encrypted, whose file it is and which folder it is in: a link that is passed on does not
// reveal the name of the user.
type signer struct{ seal *keyring.Sealer }

// owned is the file of a link.
type owned struct {
	Tenant    string `json:"t"`
	Type      string `json:"y"`
	Subfolder string `json:"s"`
	Issued    int64  `json:"i"` // Unix seconds
}

func newSigner(seal *keyring.Sealer) *signer { return &signer{seal} }

// link returns the name and query of a link to a tenant's file. Errors: keyring.ErrUnavailable.
func (s *signer) link(tenant string, ref job.FileRef, now, expires time.Time) (string, error) {
	of, err := json.Marshal(owned{Tenant: tenant, Type: ref.Type, Subfolder: ref.Subfolder, Issued: now.Unix()})
	if err != nil {
		return "", fmt.Errorf("hub: link: %w", err)
	}
	exp := strconv.FormatInt(expires.Unix(), 10)
	sig, err := s.seal.Seal(of, signed(ref.Filename, exp))
	if err != nil {
		return "", fmt.Errorf("hub: link: %w", err)
	}
	query := url.Values{"exp": {exp}, "sig": {base64.RawURLEncoding.EncodeToString(sig)}}
	return url.PathEscape(ref.Filename) + "?" + query.Encode(), nil
}

// open reads a link. Errors: ErrLinkForged, ErrLinkExpired, ErrLinkTooLong, keyring.ErrUnavailable.
func (s *signer) open(ctx context.Context, name, exp, sealed string, now time.Time) (tenant string, ref job.FileRef, err error) {
	sig, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", job.FileRef{}, ErrLinkForged
	}
	plain, err := s.seal.Open(ctx, sig, signed(name, exp))
	if errors.Is(err, keyring.ErrForged) {
		return "", job.FileRef{}, ErrLinkForged
	}
	if err != nil {
		return "", job.FileRef{}, fmt.Errorf("hub: link: %w", err)
	}
	var of owned
	seconds, err := strconv.ParseInt(exp, 10, 64)
	if err != nil || json.Unmarshal(plain, &of) != nil {
		return "", job.FileRef{}, ErrLinkForged
	}
	latest := now.Add(clockSkew)
	switch {
	case now.Unix() >= seconds:
		return "", job.FileRef{}, ErrLinkExpired
	case seconds > latest.Add(MaxLinkLife).Unix(), of.Issued > latest.Unix(), seconds-of.Issued > int64(MaxLinkLife/time.Second):
		return "", job.FileRef{}, ErrLinkTooLong
	}
	return of.Tenant, job.FileRef{Type: of.Type, Subfolder: of.Subfolder, Filename: name}, nil
}

// signed returns the part of a link that everybody can read. The time has no colon, so no other
// name and time give the same text.
func signed(name, exp string) []byte { return []byte(exp + ":" + name) }
