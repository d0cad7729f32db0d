package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/overflow/endpoints"
)

// Overflow is a serverless endpoint to which jobs go for which the fleet has no time.
type Overflow struct {
	// `runpod` or `http`.
	Kind string `json:"kind"`

	// Its name. Default: the id, or the host of the URL.
	Name string `json:"name,omitempty" word:"name <name>"`

	// The id of an endpoint of RunPod.
	Endpoint string `json:"endpoint,omitempty" word:"endpoint <id>"`

	// The https URL of a service of the contract.
	URL string `json:"url,omitempty" word:"url <url>"`

	// The key for it.
	Key string `json:"key,omitempty" word:"key {env.NAME}|{file./path}"`

	// The wait beyond which jobs go there. Default: 30s.
	After caddy.Duration `json:"after,omitempty" word:"after <duration>"`

	// What all runs may cost a day by UTC.
	Budget float64 `json:"budget,omitempty" word:"budget <money>/day"`

	// What a second costs.
	Price float64 `json:"price,omitempty" word:"price <money>/s"`

	// How many runs there are at one time. Default: 1.
	Max int `json:"max,omitempty" word:"max <n>"`

	// The longest run. Default: 10m.
	Timeout caddy.Duration `json:"timeout,omitempty" word:"timeout <duration>"`

	// The only node classes that a job may have; `*` stands for any text. Default: all.
	Only []string `json:"only,omitempty" word:"only class_type <pattern...>"`

	// What may leave besides the graph: `inputs`, `secrets`. Default: nothing.
	Private []string `json:"private,omitempty" word:"private inputs|secrets..."`

	// A file with the answer of its ComfyUI to `GET /object_info`. Default: what the fleet can run.
	ObjectInfo string `json:"object_info,omitempty" word:"object_info <file>"`

	// Hosts from which the files of runs are fetched. Default: all public ones.
	FilesFrom []string `json:"files_from,omitempty" word:"files_from <host...>"`

	info []byte
}

// Overflows are all endpoints.
type Overflows []*Overflow

// UnmarshalCaddyfile parses a block "overflow runpod|http" of the app.
func (s *Overflows) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	o := &Overflow{}
	if !d.Args(&o.Kind) || d.CountRemainingArgs() > 0 {
		return d.Err("overflow takes runpod or http, and a block")
	}
	filled, err := lines(d, o, "", ownLines{"only": o.unmarshalOnly, "private": o.unmarshalPrivate})
	switch {
	case err != nil:
		return err
	case !filled:
		return d.Err("overflow takes a block")
	}
	*s = append(*s, o)
	if err := s.check(); err != nil {
		return d.Errf("overflow: %w", err)
	}
	return nil
}

// unmarshalOnly parses a line "only class_type <pattern...>".
func (o *Overflow) unmarshalOnly(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 || args[0] != "class_type" {
		return d.Err("only takes class_type, and node classes")
	}
	o.Only = append(o.Only, args[1:]...)
	return nil
}

// unmarshalPrivate parses a line "private inputs|secrets...".
func (o *Overflow) unmarshalPrivate(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return d.ArgErr()
	}
	for _, arg := range args {
		if err := oneOf(arg, "inputs", "secrets"); err != nil {
			return d.Errf("private: %w", err)
		}
	}
	o.Private = append(o.Private, args...)
	return nil
}

// check validates values that may come from JSON.
func (s Overflows) check() error {
	if len(s) > endpoints.Most {
		return fmt.Errorf("more than %d endpoints", endpoints.Most)
	}
	var seen []string
	for _, o := range s {
		if err := o.check(); err != nil {
			return err
		}
		if name := o.name(); slices.Contains(seen, name) {
			return fmt.Errorf("%s is given twice: name one of them", name)
		} else if name != "" {
			seen = append(seen, name)
		}
	}
	return nil
}

// endpointID is what RunPod calls its endpoints.
var endpointID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (o *Overflow) check() error {
	switch {
	case o.Kind != "runpod" && o.Kind != "http":
		return fmt.Errorf("%q is not one of runpod, http", o.Kind)
	case o.Kind == "runpod" && (o.Endpoint == "" || o.URL != ""):
		return errors.New("runpod takes an endpoint, and no url")
	case o.Kind == "http" && (o.URL == "" || o.Endpoint != ""):
		return errors.New("http takes a url, and no endpoint")
	case o.Kind == "runpod" && o.Key == "":
		return errors.New("runpod needs a key")
	case o.Max < 0 || o.Max > endpoints.MaxSlots:
		return fmt.Errorf("max: want 1 to %d", endpoints.MaxSlots)
	case o.Price < 0 || o.Budget < 0:
		return errors.New("price and budget must not be negative")
	case o.Budget > 0 && o.Price == 0:
		return errors.New("budget needs a price")
	case o.Timeout != 0 && time.Duration(o.Timeout) < config.ShortestOverflow:
		return fmt.Errorf("timeout: want %s at least", config.ShortestOverflow)
	case o.Endpoint != "" && !hasPlaceholder(o.Endpoint) && !endpointID.MatchString(o.Endpoint):
		return fmt.Errorf("endpoint: %q is not the id of an endpoint", o.Endpoint)
	case o.Name != "" && !className.MatchString(o.Name):
		return errors.New("an endpoint is named with letters, digits, '.', '_' and '-', 63 at most")
	}
	if o.URL != "" && !hasPlaceholder(o.URL) {
		if err := (config.Overflow{URL: o.URL}).Check(); err != nil {
			return err
		}
	}
	for _, what := range o.Private {
		if err := oneOf(what, "inputs", "secrets"); err != nil {
			return fmt.Errorf("private: %w", err)
		}
	}
	return checkWords(o)
}

// name tells an endpoint from others; empty while that depends on a placeholder.
func (o *Overflow) name() string {
	if hasPlaceholder(o.Endpoint) || hasPlaceholder(o.URL) {
		return o.Name
	}
	host := ""
	if u, err := url.Parse(o.URL); err == nil {
		host = u.Hostname()
	}
	return cmp.Or(o.Name, o.Endpoint, host)
}

// maxObjectInfo bounds the description of an endpoint's classes, in bytes.
const maxObjectInfo = 64 << 20

// resolve replaces the placeholders, and reads what endpoints can run.
func (s Overflows) resolve(repl *caddy.Replacer) (err error) {
	for _, o := range s {
		for _, field := range []*string{&o.Endpoint, &o.URL, &o.ObjectInfo} {
			if *field, err = repl.ReplaceOrErr(*field, false, true); err != nil {
				return err
			}
		}
		if o.Key != "" {
			if err := checkOutside(o.Key); err != nil {
				return fmt.Errorf("overflow: key: %w", err)
			}
			if o.Key, err = resolveSecret(repl, o.Key); err != nil {
				return fmt.Errorf("overflow: key: %w", err)
			}
		}
		if o.ObjectInfo == "" {
			continue
		}
		if o.info, err = readObjectInfo(o.ObjectInfo); err != nil {
			return fmt.Errorf("overflow: object_info: %w", err)
		}
	}
	return nil
}

func readObjectInfo(name string) ([]byte, error) {
	file, err := os.Open(name) // #nosec G304 -- the operator's own, from the configuration
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxObjectInfo+1))
	if err == nil && len(text) > maxObjectInfo {
		err = fmt.Errorf("it has more than %d bytes", maxObjectInfo)
	}
	return text, err
}

// endpoints are the hub's.
func (s Overflows) endpoints() (list []config.Overflow) {
	for _, o := range s {
		from := o.FilesFrom
		if len(from) == 0 {
			from = []string{"*"}
		}
		list = append(list, config.Overflow{
			Name: o.name(), RunPod: o.Endpoint, URL: o.URL, Key: o.Key, After: cmp.Or(time.Duration(o.After), config.DefaultOverflowAfter),
			Price: o.Price, Budget: o.Budget, Max: cmp.Or(o.Max, 1), Timeout: cmp.Or(time.Duration(o.Timeout), config.DefaultOverflowTimeout), Only: o.Only,
			Inputs: slices.Contains(o.Private, "inputs"), Secrets: slices.Contains(o.Private, "secrets"), ObjectInfo: o.info, FilesFrom: hostsOf(from),
		})
	}
	return list
}
