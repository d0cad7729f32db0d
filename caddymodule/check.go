package caddymodule

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
)

// resolve replaces the placeholders of all strings. An empty one selects the
// default of its field; an unknown one is an error.
func (a *App) resolve(repl *caddy.Replacer) error {
	var fields []*string
	for w := range wordsOf(a) {
		fields = append(fields, w.texts()...)
	}
	if a.Gossip != nil {
		for w := range wordsOf(a.Gossip) {
			fields = append(fields, w.texts()...)
		}
	}
	if a.KEDA != nil {
		fields = append(fields, &a.KEDA.Address)
		for w := range wordsOf(a.KEDA) {
			fields = append(fields, w.texts()...)
		}
	}
	for i := range a.A1111 {
		fields = append(fields, &a.A1111[i])
	}
	for i := range a.Reserve {
		fields = append(fields, &a.Reserve[i].Instance)
	}
	for i := range a.GPUs {
		fields = append(fields, &a.GPUs[i].Instance, &a.GPUs[i].Name)
	}
	for _, f := range fields {
		value, err := repl.ReplaceOrErr(*f, false, true)
		if err != nil {
			return err
		}
		if value == "" && *f != "" && !strings.Contains(*f, "{env.COMFYHUB_") { // those may be empty
			a.empty = append(a.empty, *f)
		}
		*f = value
	}
	if g := a.Gossip; g != nil {
		key, err := resolveSecret(repl, g.Key)
		if err != nil {
			return fmt.Errorf("gossip: key: %w", err)
		}
		g.Key = key
	}
	if err := a.Callbacks.resolve(repl); err != nil {
		return err
	}
	if err := a.Scale.resolve(repl); err != nil {
		return err
	}
	if err := a.Overflow.resolve(repl); err != nil {
		return err
	}
	return a.resolveSecrets(repl)
}

// check validates a resolved configuration.
func (a *App) check() error {
	if err := checkWords(a); err != nil {
		return err
	}
	if a.RedisReplicas > 0 && (a.Redis == "" || a.Redis == "embedded") {
		return errors.New("redis_replicas: the embedded queue has no replicas")
	}
	if err := checkSecrets(a.Secret); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	if a.TenantLimits != nil {
		if err := errors.Join(checkWords(a.TenantLimits), a.TenantLimits.checkWeight(false)); err != nil {
			return fmt.Errorf("tenant_limits: %w", err)
		}
	}
	if err := a.KEDA.check(); err != nil {
		return fmt.Errorf("keda: %w", err)
	}
	if err := a.TenantLimitsOf.check(); err != nil {
		return fmt.Errorf("tenant_limits %w", err)
	}
	if err := checkRules(a.Rules); err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if err := a.TenantWeights.check(); err != nil {
		return fmt.Errorf("tenant_weights: %w", err)
	}
	instances := slices.Concat(a.Instances, a.A1111)
	for i, instance := range instances {
		if err := checkInstance(instance); err != nil {
			return fmt.Errorf("instance: %w", err)
		}
		if slices.Contains(instances[:i], instance) {
			return fmt.Errorf("instance %s is given twice", instance)
		}
	}
	if err := a.Callbacks.check(); err != nil {
		return fmt.Errorf("callbacks: %w", err)
	}
	if err := a.Reserve.check(); err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	if err := a.Scale.check(); err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	if err := a.Overflow.check(); err != nil {
		return fmt.Errorf("overflow: %w", err)
	}
	if err := a.GPUs.check(); err != nil {
		return fmt.Errorf("gpu: %w", err)
	}
	if a.Gossip != nil {
		if err := a.Gossip.check(); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	return nil
}

func (g *Gossip) check() error {
	if err := checkWords(g); err != nil {
		return err
	}
	if g.Bind == "" || isLoopback(g.Bind) {
		return nil
	}
	if g.Key == "" {
		return fmt.Errorf("%s is not a loopback address, so a key is required: without one, anyone who reaches it could join the fleet", g.Bind)
	}
	for line := range strings.Lines(g.Key) {
		line = strings.TrimSpace(line)
		if err := checkSecret(line); line != "" && err != nil {
			// One captured packet is enough to try guesses on.
			return fmt.Errorf("key: %w", err)
		}
	}
	return nil
}

// checkAllowDirect accepts a network, an address or a host name.
func checkAllowDirect(value string) error {
	if hasPlaceholder(value) {
		return nil
	}
	return config.CheckAllowDirect(value)
}

// checkAgentsFrom accepts a network or an address.
func checkAgentsFrom(value string) error {
	if hasPlaceholder(value) {
		return nil
	}
	return config.CheckAgentsFrom(value)
}

// hasPlaceholder reports whether a value cannot be checked before placeholders are
// replaced.
func hasPlaceholder(value string) bool { return strings.Contains(value, "{") }

// checkRedis accepts what can be the address of a queue; the hub parses it
// completely when it starts. It may name several hosts, so net/url cannot parse it.
// The error does not repeat it, because it may contain a password.
func checkRedis(value string) error {
	if value == "" || value == "embedded" || hasPlaceholder(value) {
		return nil
	}
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		return errors.New("neither \"embedded\" nor a URL")
	}
	switch base, _, _ := strings.Cut(scheme, "+"); base {
	case "redis", "rediss", "unix":
	default:
		return errors.New("not the scheme of a Redis URL")
	}
	if rest == "" {
		return errors.New("the URL names no host")
	}
	return nil
}

// checkStorage accepts a folder or the URL of one or of a bucket.
func checkStorage(value string) error {
	if value == "" || hasPlaceholder(value) {
		return nil
	}
	return files.CheckLocation(value)
}

// checkInstance accepts the base URL of a ComfyUI server.
func checkInstance(value string) error {
	if hasPlaceholder(value) {
		return nil
	}
	u, err := url.Parse(value)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https":
		// The usual mistake is an address without a scheme, for which Go's own
		// error is cryptic.
		return fmt.Errorf("%q is not a URL of the form http://host:port", value)
	case u.Hostname() == "":
		return fmt.Errorf("%q names no host", value)
	case u.User != nil:
		// They would appear in logs and in /hub/instances.
		return errors.New("credentials do not belong in an instance's URL")
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has a query or a fragment", value)
	}
	return nil
}

// checkOrigin accepts what browsers and desktop apps send as Origin, "*" and
// nothing. A trailing slash is the usual mistake, and no page would match it.
// "null" is not accepted: any site can make a page with that origin.
func checkOrigin(value string) error {
	if value == "" || value == "*" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != value {
		return fmt.Errorf("%q is neither * nor an origin of the form https://host:port", value)
	}
	return nil
}

// checkHostPort accepts an address with a numeric port; 0 asks for a free one.
func checkHostPort(value string) error {
	if hasPlaceholder(value) {
		return nil
	}
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("%q is not of the form host:port", value)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port", port)
	}
	return nil
}

// isLoopback reports whether only this machine can reach an address. A name other
// than localhost may resolve to anything.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
