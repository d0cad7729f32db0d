package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts of one command. A dead or hanging Redis is reported within about two
// seconds, before a client of the hub gives up by itself.
const (
	dialTimeout = time.Second
	ioTimeout   = 2 * time.Second
)

// opener returns a new client. DB opens two, so that subscriptions neither wait for
// the connections of commands nor use them up.
type opener func() goredis.UniversalClient

// dialer connects to a server.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// parseURL parses Options.URL; a nil opener means the embedded server.
func parseURL(raw string, dial dialer) (opener, error) {
	if raw == "" || raw == Embedded {
		return nil, nil
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		// The URL may contain a password, so errors do not repeat it.
		return nil, fmt.Errorf("redis: the URL is neither %q nor of the form redis://host:port", Embedded)
	}
	base, kind, _ := strings.Cut(scheme, "+")
	if base != "redis" && base != "rediss" && (base != "unix" || kind != "") {
		return nil, fmt.Errorf("redis: unknown URL scheme %q", scheme)
	}
	switch kind {
	case "":
		return parseSingle(raw, dial)
	case "sentinel":
		return parseSentinel(base, rest)
	case "cluster":
		return parseCluster(base, rest)
	default:
		return nil, fmt.Errorf("redis: unknown URL scheme %q", scheme)
	}
}

func parseSingle(raw string, dial dialer) (opener, error) {
	o, err := goredis.ParseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("redis: URL: %w", withoutURL(err))
	}
	tune(o)
	if dial != nil {
		o.Dialer = dial
	}
	return func() goredis.UniversalClient { c := *o; return goredis.NewClient(&c) }, nil
}

// tune sets what every connection needs, whatever the URL says: a retry inside
// go-redis would run a script twice, and if a context did not end a read, a hanging
// Redis could block a request.
func tune(o *goredis.Options) {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.Protocol = 2
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DialerRetries = 1
	limit(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
}

// limit sets the timeouts that the URL has not set.
func limit(dial, read, write, pool *time.Duration) {
	*dial = cmp.Or(*dial, dialTimeout)
	*read = cmp.Or(*read, ioTimeout)
	*write = cmp.Or(*write, ioTimeout)
	*pool = cmp.Or(*pool, ioTimeout)
}

// parseSentinel converts redis+sentinel://h1:p,h2:p/master/db into the form that
// go-redis parses: one host in the URL, the others and the master's name in the
// query.
func parseSentinel(base, rest string) (opener, error) {
	u, hosts, err := splitHosts(base, rest)
	if err != nil {
		return nil, err
	}
	master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	query := u.Query()
	if master != "" {
		query.Set("master_name", master)
	}
	if query.Get("master_name") == "" {
		return nil, fmt.Errorf("redis: URL: no name of a master: %s+sentinel://host:port/master", base)
	}
	for _, host := range hosts {
		query.Add("addr", host)
	}
	u.Path, u.RawQuery = "/"+db, query.Encode()
	o, err := goredis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("redis: URL: %w", withoutURL(err))
	}
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.Protocol = 2
	o.DisableIdentity = true
	o.DialerRetries = 1
	limit(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return func() goredis.UniversalClient { c := *o; return goredis.NewFailoverClient(&c) }, nil
}

func parseCluster(base, rest string) (opener, error) {
	u, hosts, err := splitHosts(base, rest)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	for _, host := range hosts {
		query.Add("addr", host)
	}
	u.RawQuery = query.Encode()
	o, err := goredis.ParseClusterURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("redis: URL: %w", withoutURL(err))
	}
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.Protocol = 2
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DialerRetries = 1
	limit(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return func() goredis.UniversalClient { c := *o; return goredis.NewClusterClient(&c) }, nil
}

// splitHosts splits "user:pw@h1:p,h2:p/path?query" into a URL with the first host
// only, and the other hosts. net/url refuses several hosts.
func splitHosts(base, rest string) (*url.URL, []string, error) {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	user, list := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, list = authority[:at+1], authority[at+1:]
	}
	hosts := strings.Split(list, ",")
	u, err := url.Parse(base + "://" + user + hosts[0] + tail)
	if err != nil {
		return nil, nil, fmt.Errorf("redis: URL: %w", withoutURL(err))
	}
	return u, hosts[1:], nil
}

// withoutURL removes the URL from a parse error: it may contain a password.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
