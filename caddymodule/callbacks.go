package caddymodule

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Callbacks says where jobs may have callbacks, and what signs them.
type Callbacks struct {
	// Hosts that callbacks may name, as in `inputs_from`.
	Allow []string `json:"allow,omitempty" word:"allow <host...>"`

	// What callbacks are signed with; each tenant's with a secret derived from it. To
	// change it, put the new one before the old one. At least 16 bytes each, from
	// {env.NAME} or {file./path}.
	Secret []string `json:"secret,omitempty" word:"secret {env.NAME}|{file./path}..."`
}

// UnmarshalCaddyfile sets up callbacks from the block "callbacks" of the app.
func (c *Callbacks) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	if _, err := lines(d, c, "", nil); err != nil {
		return err
	}
	if len(c.Allow) == 0 || len(c.Secret) == 0 {
		return d.Err("callbacks needs allow and secret")
	}
	return nil
}

// resolve replaces the placeholders.
func (c *Callbacks) resolve(repl *caddy.Replacer) (err error) {
	if c == nil {
		return nil
	}
	for i := range c.Allow {
		if c.Allow[i], err = repl.ReplaceOrErr(c.Allow[i], false, true); err != nil {
			return err
		}
	}
	for _, secret := range c.Secret {
		if err := checkOutside(secret); err != nil {
			return fmt.Errorf("callbacks: secret: %w", err)
		}
	}
	if c.Secret, err = resolveSecretList(repl, c.Secret); err != nil {
		return fmt.Errorf("callbacks: secret: %w", err)
	}
	return nil
}

// check validates what was resolved.
func (c *Callbacks) check() error {
	if c == nil {
		return nil
	}
	for _, host := range c.Allow {
		if err := checkHost(host); err != nil {
			return fmt.Errorf("allow: %w", err)
		}
	}
	if len(c.Allow) == 0 || len(c.Secret) == 0 {
		return errors.New("allow and secret are needed")
	}
	if err := checkSecrets(c.Secret); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	return nil
}
