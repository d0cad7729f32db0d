package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/comfyhub/comfyhub/internal/egress"
)

// webhookFor is how long a receiver may take to answer.
const webhookFor = 30 * time.Second

// Webhook is a program elsewhere that starts and stops machines. It gets a [Change] as the body of
// a POST, signed as Standard Webhooks have it, and has done it if it answers with a 2xx.
type Webhook struct {
	// URL is https, without a login in it.
	URL string
	// Secret signs the calls; its bytes are the key.
	Secret string
	// Egress is for tests.
	Egress egress.Options
}

// Check says what is wrong with the URL.
func (w Webhook) Check() error {
	_, err := w.hosts()
	return err
}

// hosts allows the one host that is called. The operator has named it, so it may be a private
// address; a name that leads to one may not.
func (w Webhook) hosts() (egress.Hosts, error) {
	u, err := url.Parse(w.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return egress.Hosts{}, errors.New("the webhook's URL is not https://host/path")
	}
	hosts, err := egress.ParseHosts([]string{u.Host})
	if err == nil {
		err = hosts.Check(u)
	}
	return hosts, err
}

// Set implements [Provider].
func (w Webhook) Set(ctx context.Context, c Change) error {
	hosts, err := w.hosts()
	if err != nil {
		return err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	header, err := egress.Signed([][]byte{[]byte(w.Secret)}, c.ID, body, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, webhookFor)
	defer cancel()
	status, err := egress.NewClient(hosts, w.Egress).Post(ctx, w.URL, header, body)
	var failed *url.Error
	switch {
	case errors.As(err, &failed):
		return fmt.Errorf("the webhook failed: %w", failed.Err) // without the URL, whose query may be secret
	case err != nil:
		return fmt.Errorf("the webhook failed: %w", err)
	case status < 200 || status > 299:
		return fmt.Errorf("the webhook answered with %d %s", status, http.StatusText(status))
	}
	return nil
}
