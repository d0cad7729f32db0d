package caddymodule

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Reservation keeps instances for the jobs of some tenants.
type Reservation struct {
	// The name of an instance, in which each `*` stands for any text, or the URL of one
	// in `instances`.
	Instance string `json:"instance"`

	// The tenants whose jobs run there. An instance that several reservations name runs
	// the jobs of all their tenants.
	Tenants []string `json:"tenants"`
}

func (r Reservation) check() error {
	switch {
	case r.Instance == "":
		return errors.New("no instance is named")
	case len(r.Tenants) == 0:
		return fmt.Errorf("%s: no tenant is named", r.Instance)
	case slices.Contains(r.Tenants, ""):
		return fmt.Errorf("%s: a tenant has no name", r.Instance)
	case strings.Contains(r.Instance, "://"):
		return checkInstance(r.Instance)
	}
	return nil
}

// Reservations are those of all instances.
type Reservations []Reservation

func (rs Reservations) check() error {
	for _, r := range rs {
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}

// named returns them with the names of instances in place of URLs.
func (rs Reservations) named() (list []schedule.Reservation) {
	for _, r := range rs {
		list = append(list, schedule.Reservation{Instances: instanceName(r.Instance), Tenants: r.Tenants})
	}
	return list
}

// UnmarshalCaddyfile parses a line "reserve <instance> tenant=<tenant,...>" of the app.
func (rs *Reservations) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	nesting := d.Nesting()
	if !d.NextArg() {
		return d.ArgErr()
	}
	if err := rs.add(d, "reserve", d.Val()); err != nil {
		return err
	}
	if d.NextBlock(nesting) {
		return d.Err("reserve takes no block")
	}
	return nil
}

// unmarshalInstance parses a line "instance <url> [a1111]", or a block with "a1111",
// "only tenant=<tenant,...>" and "gpu <name>".
func (a *App) unmarshalInstance(d *caddyfile.Dispenser) error {
	nesting := d.Nesting()
	args := d.RemainingArgs()
	ofA1111 := len(args) == 2 && args[1] == "a1111"
	if len(args) != 1 && !ofA1111 {
		return d.Errf("instance takes a URL, and perhaps the word a1111, not %d arguments", len(args))
	}
	if slices.Contains(slices.Concat(a.Instances, a.A1111), args[0]) {
		return d.Errf("instance: %s is given twice", args[0])
	}
	if err := checkInstance(args[0]); err != nil {
		return d.Errf("instance: %w", err)
	}
	a.Instances = append(a.Instances, args[0])
	if ofA1111 {
		toA1111(a)
	}
	var seen []string
	for d.NextBlock(nesting) {
		word := d.Val()
		if slices.Contains(seen, word) {
			return d.Errf("%s is given twice", word)
		}
		seen = append(seen, word)
		switch word {
		case "a1111":
			if d.CountRemainingArgs() > 0 {
				return d.ArgErr()
			}
			if !ofA1111 {
				toA1111(a)
			}
			ofA1111 = true
		case "only":
			if err := a.Reserve.add(d, word, args[0]); err != nil {
				return err
			}
		case "gpu":
			names := d.RemainingArgs()
			if len(names) != 1 {
				return d.Errf("gpu takes one argument, not %d", len(names))
			}
			a.GPUs = append(a.GPUs, GPU{Instance: args[0], Name: names[0]})
		default:
			return unknownWord(d, "gpu", "a1111")
		}
	}
	return nil
}

// toA1111 notes that the instance that was added last is one of A1111's API.
func toA1111(a *App) {
	last := len(a.Instances) - 1
	a.A1111 = append(a.A1111, a.Instances[last])
	a.Instances = a.Instances[:last]
}

// add parses the tenants behind a word.
func (rs *Reservations) add(d *caddyfile.Dispenser, word, instance string) error {
	r := Reservation{Instance: instance}
	for _, arg := range d.RemainingArgs() {
		names, ok := strings.CutPrefix(arg, "tenant=")
		if !ok {
			return d.Errf("%q is not of the form tenant=<tenant,...>", arg)
		}
		r.Tenants = append(r.Tenants, strings.Split(names, ",")...)
	}
	if err := r.check(); err != nil {
		return d.Errf("%s: %w", word, err)
	}
	*rs = append(*rs, r)
	return nil
}
