package tunnel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// HashSize is that of the hash of a token, in hexadecimal.
const HashSize = 2 * sha256.Size

// joinAnswer bounds what is read of an answer.
const joinAnswer = 4 << 10

// Join asks a hub to accept a token of the machine from now on, given one for joining. It may be asked
// again. The error is [ErrToken] if that was used by another, or is too old, and [ErrLogin] if the hub
// was not asked.
func Join(ctx context.Context, hub, once, own, userAgent string, client *http.Client) error {
	u, err := SiteURL(hub)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	sum := sha256.Sum256([]byte(own))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.JoinPath(Path).String(), strings.NewReader(hex.EncodeToString(sum[:])))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+once)
	r.Header.Set("User-Agent", userAgent)
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("joining at %s: %w", u.Redacted(), err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, joinAnswer))
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return nil
	case resp.StatusCode == http.StatusUnauthorized:
		return refusedBy(resp)
	}
	return fmt.Errorf("joining at %s: %s: %.200s", u.Redacted(), resp.Status, text)
}

// refusedBy tells who answered with 401.
func refusedBy(resp *http.Response) error {
	if scheme, _, _ := strings.Cut(resp.Header.Get("WWW-Authenticate"), " "); scheme != "" && !strings.EqualFold(scheme, "Bearer") {
		return ErrLogin
	}
	return ErrToken
}
