package caddymodule

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/keyring"
)

// fileForm finds the files that a value includes.
var fileForm = regexp.MustCompile(`\{file\.([^{}]+)\}`)

// noFile is used where the Caddyfile names no file, on all systems.
const noFile = "/dev/null"

// resolveSecret replaces the placeholders of a secret. Caddy treats an unreadable
// file as empty, and an empty secret would mean that there is none: a mistyped path
// must not disable the protection.
func resolveSecret(repl *caddy.Replacer, value string) (string, error) {
	for _, match := range fileForm.FindAllStringSubmatch(value, -1) {
		if match[1] == noFile {
			continue
		}
		file, err := os.Open(match[1])
		if err != nil {
			return "", fmt.Errorf("the file of a secret: %w", err)
		}
		_ = file.Close()
	}
	text, err := repl.ReplaceOrErr(value, false, true)
	return strings.TrimSpace(text), err
}

// inlineSecret reports whether a value is not only made of placeholders. Caddy shows the
// configuration to everybody who reaches its admin endpoint, and what a placeholder stands for
// to nobody. What `{$NAME}` stands for in a Caddyfile is in the configuration, too.
func inlineSecret(value string) bool {
	return strings.TrimSpace(placeholders.ReplaceAllString(value, "")) != ""
}

// placeholders finds what is replaced when the configuration is loaded.
var placeholders = regexp.MustCompile(`\{[^{}]+\}`)

// inlineSecrets are the words whose secrets the configuration itself contains.
func inlineSecrets(a *App) (words []string) {
	if _, rest, isURL := strings.Cut(a.Redis, "://"); isURL {
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			_, password, _ := strings.Cut(rest[:at], ":")
			if inlineSecret(password) {
				words = append(words, "redis")
			}
		}
	}
	if slices.ContainsFunc(a.Secret, inlineSecret) {
		words = append(words, "secret")
	}
	if a.Gossip != nil && inlineSecret(a.Gossip.Key) {
		words = append(words, "gossip { key }")
	}
	return words
}

// checkOutside refuses a secret that the configuration itself would contain.
func checkOutside(written string) error {
	if inlineSecret(written) {
		return errors.New("must come from {env.NAME} or {file./path}, because the configuration can be read at Caddy's admin endpoint")
	}
	return nil
}

// checkTenantSecret validates a tenant secret as it is written, and as what it stands for
// unless that is not known yet. An empty one is none, such as a variable that is not set.
func checkTenantSecret(written, text string) error {
	if err := checkOutside(written); err != nil {
		return err
	}
	if text == "" {
		return nil
	}
	return checkSecret(text)
}

// resolveSecrets removes empty secrets of the operator, such as a variable that is
// not set.
func (a *App) resolveSecrets(repl *caddy.Replacer) error {
	secrets, err := resolveSecretList(repl, a.Secret)
	if err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	a.Secret = secrets
	return nil
}

// resolveSecretList resolves each secret, and removes empty ones.
func resolveSecretList(repl *caddy.Replacer, values []string) (secrets []string, err error) {
	for _, value := range values {
		text, err := resolveSecret(repl, value)
		if err != nil {
			return nil, err
		}
		if text != "" {
			secrets = append(secrets, text)
		}
	}
	return secrets, nil
}

// checkSecret refuses secrets that can be guessed. The error does not repeat them.
func checkSecret(value string) error {
	if len(value) >= keyring.MinSecret {
		return nil
	}
	return fmt.Errorf("shorter than %d bytes; `openssl rand -base64 32` makes a good one", keyring.MinSecret)
}

// checkSecrets validates the operator's secrets after their placeholders were
// replaced.
func checkSecrets(secrets []string) error {
	for n, secret := range secrets {
		if err := checkSecret(secret); err != nil {
			return err
		}
		if slices.Contains(secrets[:n], secret) {
			return errors.New("one is given twice")
		}
	}
	return nil
}
