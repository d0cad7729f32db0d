package caddymodule

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/scale/ec2"
	"github.com/comfyhub/comfyhub/internal/scale/kubernetes"
)

// Scale is a class of machines that come and go by need.
type Scale struct {
	// Name of the class.
	Class string `json:"class"`

	// Names of its instances; `*` stands for any text. Default: `<class>-*`.
	Instances []string `json:"instances,omitempty" word:"instances <name...>"`

	// How many there are at least. Default: 0.
	Min int `json:"min,omitempty" word:"min <n>"`

	// How many there are at most.
	Max int `json:"max" word:"max <n>"`

	// How long an instance has nothing to do before it goes. Default: 5m.
	IdleAfter caddy.Duration `json:"idle_after,omitempty" word:"idle_after <duration>"`

	// What all of them may cost a day by UTC. Default: no limit.
	Budget float64 `json:"budget,omitempty" word:"budget <money>/day"`

	// What one costs an hour. Default: unknown.
	Price float64 `json:"price,omitempty" word:"price <money>/h"`

	// How long the token of a machine to be started is valid, with which it joins once. At most a day.
	// Default: machines get none.
	Tokens caddy.Duration `json:"tokens,omitempty" word:"tokens <duration>"`

	// The program that starts and stops them, with its arguments. Default: none, whatever starts
	// them reads `GET /hub/scale`.
	Exec []string `json:"exec,omitempty"`

	// The https URL of one elsewhere, in place of `exec`, and the secret of at least 16 bytes that
	// signs the calls, from `{env.NAME}` or `{file./path}`.
	Webhook       string `json:"webhook,omitempty"`
	WebhookSecret string `json:"webhook_secret,omitempty"`

	// A Deployment, in place of `exec`: its name, behind its namespace and a slash if that is not the
	// hub's own.
	Deployment string `json:"kubernetes,omitempty"`

	// An Auto Scaling group of EC2, in place of `exec`, and its region if the environment does not
	// say it.
	Group       string `json:"ec2,omitempty"`
	GroupRegion string `json:"ec2_region,omitempty"`
}

// Scales are all classes.
type Scales []*Scale

// UnmarshalCaddyfile parses a block "scale <class>" of the app.
func (s *Scales) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	c := &Scale{}
	if !d.Args(&c.Class) || d.CountRemainingArgs() > 0 {
		return d.Err("scale takes the name of a class, and a block")
	}
	filled, err := lines(d, c, "", ownLines{"min": c.unmarshalMin, "provider": c.unmarshalProvider})
	switch {
	case err != nil:
		return err
	case !filled:
		return d.Err("scale takes a block")
	}
	*s = append(*s, c)
	if err := s.check(); err != nil {
		return d.Errf("scale: %w", err)
	}
	return nil
}

// unmarshalMin parses a line "min <n>"; unlike other counts it may be 0.
func (s *Scale) unmarshalMin(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("min takes one argument, not %d", len(args))
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 0 {
		return d.Errf("min: %q is not a whole number", args[0])
	}
	s.Min = n
	return nil
}

// unmarshalProvider parses a line "provider exec <program> [<argument>...]", "provider webhook <url>
// <secret>", "provider kubernetes [<namespace>/]<deployment>", or "provider ec2 <group> [<region>]".
func (s *Scale) unmarshalProvider(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	switch {
	case len(args) == 0:
		return d.ArgErr()
	case args[0] == "webhook" && len(args) == 3:
		s.Webhook, s.WebhookSecret = args[1], args[2]
		if err := checkOutside(s.WebhookSecret); err != nil {
			return d.Errf("provider webhook: secret: %w", err)
		}
		return nil
	case args[0] == "webhook":
		return d.Err("provider webhook takes a URL and a secret")
	case args[0] == "kubernetes" && len(args) == 2:
		s.Deployment = args[1]
		return nil
	case args[0] == "kubernetes":
		return d.Err("provider kubernetes takes a Deployment: its name, or namespace/name")
	case args[0] == "ec2" && len(args) == 2:
		s.Group = args[1]
		return nil
	case args[0] == "ec2" && len(args) == 3:
		s.Group, s.GroupRegion = args[1], args[2]
		return nil
	case args[0] == "ec2":
		return d.Err("provider ec2 takes an Auto Scaling group, and perhaps its region")
	case args[0] != "exec":
		return d.Errf("provider: %q is not one of exec, webhook, kubernetes, ec2", args[0])
	case len(args) == 1:
		return d.Err("provider exec takes a program, and perhaps arguments")
	}
	s.Exec = args[1:]
	return nil
}

// className is what a class may be called: its name is in labels, queries and names of instances.
var className = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// deploymentName is the name of a Deployment, perhaps behind its namespace; regionName is that of a
// region of AWS.
var (
	deploymentName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	regionName     = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]{1,2}$`)
)

// providers counts those that the class has.
func (s *Scale) providers() (n int) {
	for _, given := range []bool{len(s.Exec) > 0, s.Webhook != "", s.Deployment != "", s.Group != ""} {
		if given {
			n++
		}
	}
	return n
}

// check validates values that may come from JSON.
func (s Scales) check() error {
	if len(s) > scale.MaxClasses {
		return fmt.Errorf("more than %d classes", scale.MaxClasses)
	}
	var seen []string
	for _, c := range s {
		if slices.Contains(seen, c.Class) {
			return fmt.Errorf("%s is given twice", c.Class)
		}
		seen = append(seen, c.Class)
		if err := c.check(); err != nil {
			return fmt.Errorf("%s: %w", c.Class, err)
		}
	}
	return nil
}

func (s *Scale) check() error {
	switch {
	case !className.MatchString(s.Class):
		return errors.New("a class is named with letters, digits, '.', '_' and '-', 63 at most")
	case s.Max < 1 || s.Max > scale.MaxMachines:
		return fmt.Errorf("max is needed, from 1 to %d", scale.MaxMachines)
	case s.Min < 0 || s.Min > s.Max:
		return errors.New("min is more than max")
	case s.Price < 0 || s.Budget < 0:
		return errors.New("price and budget must not be negative")
	case time.Duration(s.Tokens) > scale.MaxJoins:
		return fmt.Errorf("tokens: they are valid for %v at most", scale.MaxJoins)
	case s.Tokens > 0 && len(s.Instances) > 0 && !strings.Contains(s.Instances[0], "*"):
		return errors.New("tokens: new machines need names: instances has no *")
	case s.Budget > 0 && s.Price == 0:
		return errors.New("budget needs a price")
	case len(s.Exec) > 0 && s.Exec[0] == "":
		return errors.New("provider exec: the program has no name")
	case s.providers() > 1:
		return errors.New("exec, webhook, kubernetes and ec2 are several providers")
	case s.Deployment != "" && !deploymentName.MatchString(s.Deployment):
		return fmt.Errorf("provider kubernetes: %q is no name of a Deployment, nor namespace/name", s.Deployment)
	case s.GroupRegion != "" && !regionName.MatchString(s.GroupRegion):
		return fmt.Errorf("provider ec2: %q is no region", s.GroupRegion)
	case len(s.Group) > 255:
		return errors.New("provider ec2: a group's name has 255 characters at most")
	case s.Tokens > 0 && (s.Deployment != "" || s.Group != ""):
		return errors.New("tokens: only exec and webhook can give each machine its own")
	}
	if err := s.checkWebhook(); err != nil {
		return fmt.Errorf("provider webhook: %w", err)
	}
	return checkWords(s)
}

// checkWebhook validates what is known of the webhook: placeholders are replaced later.
func (s *Scale) checkWebhook() error {
	if s.Webhook == "" || hasPlaceholder(s.Webhook) {
		return nil
	}
	if err := (scale.Webhook{URL: s.Webhook}).Check(); err != nil {
		return err
	}
	if hasPlaceholder(s.WebhookSecret) {
		return nil
	}
	return checkSecret(s.WebhookSecret)
}

// resolve replaces the placeholders of the webhooks.
func (s Scales) resolve(repl *caddy.Replacer) (err error) {
	for _, c := range s {
		if c.Webhook == "" {
			continue
		}
		if c.Webhook, err = repl.ReplaceOrErr(c.Webhook, false, true); err != nil {
			return err
		}
		if err := checkOutside(c.WebhookSecret); err != nil {
			return fmt.Errorf("scale: %s: secret: %w", c.Class, err)
		}
		if c.WebhookSecret, err = resolveSecret(repl, c.WebhookSecret); err != nil {
			return fmt.Errorf("scale: %s: secret: %w", c.Class, err)
		}
	}
	return nil
}

// classes are the hub's.
func (s Scales) classes() (list []scale.Class) {
	for _, c := range s {
		class := scale.Class{
			Name: c.Class, Instances: c.Instances, Min: c.Min, Max: c.Max, IdleAfter: time.Duration(c.IdleAfter), Price: c.Price, Budget: c.Budget,
			Joins: time.Duration(c.Tokens),
		}
		if len(class.Instances) == 0 {
			class.Instances = []string{c.Class + "-*"}
		}
		if class.IdleAfter == 0 {
			class.IdleAfter = scale.DefaultIdleAfter
		}
		switch namespace, name, found := strings.Cut(c.Deployment, "/"); {
		case len(c.Exec) > 0:
			class.Provider = scale.Exec{Command: c.Exec}
		case c.Webhook != "":
			class.Provider = scale.Webhook{URL: c.Webhook, Secret: c.WebhookSecret}
		case found:
			class.Provider = kubernetes.Deployment{Namespace: namespace, Name: name}
		case c.Deployment != "":
			class.Provider = kubernetes.Deployment{Name: c.Deployment}
		case c.Group != "":
			class.Provider = ec2.Group{Name: c.Group, Region: c.GroupRegion}
		}
		list = append(list, class)
	}
	return list
}
