package hub

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/keyring"
)

const (
	// linkLife is how long a link works where nobody says, maxLinkLife the
	// longest that can be asked for.
	linkLife    = 24 * time.Hour
	maxLinkLife = 7 * 24 * time.Hour
	// clockSkew is how far the clocks of hubs may be apart.
	clockSkew = 5 * time.Minute
)

var (
	// errForged is a link that this hub, or one of the same key, has not made.
	errForged = errors.New("hub: the link is not valid")
	// errExpired is a link whose time is over.
	errExpired = errors.New("hub: the link has expired")
	// errTooLong is a link that would work for longer than any may. It is asked
	// when a link is opened, too: a key that was stolen must not give links
	// that work for years.
	errTooLong = errors.New("hub: the link is valid for too long")
)

// signer makes links to files that work for whoever holds them, for a while:
// /hub/files/NAME?exp=SECONDS&sig=TEXT. What signs the name and the time also
// carries, encrypted, whose file it is and in which folder it lies: a link
// that is passed on tells nobody the name of the user.
type signer struct{ seal *keyring.Sealer }

// owned is the file of a link.
type owned struct {
	Tenant    string `json:"t"`
	Type      string `json:"y"`
	Subfolder string `json:"s"`
	Issued    int64  `json:"i"` // Unix seconds
}

func newSigner(seal *keyring.Sealer) *signer { return &signer{seal} }

// link is the path and query of a link to a tenant's file. Errors:
// keyring.ErrAway.
func (s *signer) link(tenant string, ref files.Ref, now, expires time.Time) (string, error) {
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
	return api.LinkPath + url.PathEscape(ref.Filename) + "?" + query.Encode(), nil
}

// open reads a link. Errors: errForged, errExpired, errTooLong, keyring.ErrAway.
func (s *signer) open(ctx context.Context, name string, query url.Values, now time.Time) (tenant string, ref files.Ref, err error) {
	exp := query.Get("exp")
	sig, err := base64.RawURLEncoding.DecodeString(query.Get("sig"))
	if err != nil {
		return "", files.Ref{}, errForged
	}
	plain, err := s.seal.Open(ctx, sig, signed(name, exp))
	if errors.Is(err, keyring.ErrForged) {
		return "", files.Ref{}, errForged
	}
	if err != nil {
		return "", files.Ref{}, fmt.Errorf("hub: link: %w", err)
	}
	var of owned
	seconds, err := strconv.ParseInt(exp, 10, 64)
	if err != nil || json.Unmarshal(plain, &of) != nil {
		return "", files.Ref{}, errForged
	}
	latest := now.Add(clockSkew)
	switch {
	case now.Unix() >= seconds:
		return "", files.Ref{}, errExpired
	case seconds > latest.Add(maxLinkLife).Unix(), of.Issued > latest.Unix(), seconds-of.Issued > int64(maxLinkLife/time.Second):
		return "", files.Ref{}, errTooLong
	}
	return of.Tenant, files.Ref{Type: of.Type, Subfolder: of.Subfolder, Filename: name}, nil
}

// signed is what stands in a link for everybody to read. The time has no colon,
// so that no other name and time give the same text.
func signed(name, exp string) []byte { return []byte(exp + ":" + name) }
