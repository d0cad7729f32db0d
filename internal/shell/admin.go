package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// adminTimeout bounds one request to the admin endpoint.
const adminTimeout = 15 * time.Second

// Admin speaks to Caddy's admin endpoint of a running hub.
type Admin struct {
	// Address is the endpoint as the user has written it.
	Address string

	origin string
	http   *http.Client
}

// NewAdmin returns a client of an admin endpoint, which must be closed. resolve turns the
// address as Caddy writes it into what can be dialled.
func NewAdmin(address string, resolve func(address string) (network, dial string, err error)) (*Admin, error) {
	network, dial, err := resolve(address)
	if err != nil {
		return nil, usagef("--address %q: %w", address, err)
	}
	a := &Admin{Address: address, origin: "http://" + dial}
	if strings.HasPrefix(network, "unix") {
		a.origin = "http://127.0.0.1" // Caddy accepts no other host there
	}
	a.http = &http.Client{
		Timeout: adminTimeout,
		Transport: &http.Transport{
			IdleConnTimeout: time.Minute,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, dial)
			},
		},
	}
	return a, nil
}

// Close closes the connections.
func (a *Admin) Close() { a.http.CloseIdleConnections() }

// ask makes a request below /comfyhub/ and decodes the answer into v, unless v is nil. A
// refusal is a [*Refusal].
func (a *Admin) ask(ctx context.Context, method, path string, query url.Values, v any) error {
	target := a.origin + "/comfyhub/" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Origin", a.origin)
	resp, err := a.http.Do(r)
	if err != nil {
		return fmt.Errorf("the admin endpoint %s: %w", a.Address, withoutURL(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the admin endpoint %s: %w", a.Address, err)
	}
	if resp.StatusCode != http.StatusOK {
		var told struct{ Error string }
		if json.Unmarshal(body, &told) != nil || told.Error == "" {
			told.Error = http.StatusText(resp.StatusCode)
		}
		if resp.StatusCode == http.StatusNotFound && !strings.Contains(string(body), "error") {
			told.Error = "this Caddy has no ComfyHub, or an older one"
		}
		return &Refusal{Status: resp.StatusCode, Detail: told.Error}
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("the answer of the admin endpoint %s: %w", a.Address, err)
	}
	return nil
}

// withoutURL takes the URL out of an error of net/http: whoever reads it knows the address.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
