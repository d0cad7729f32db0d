package apikeys

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Scope is something that a key permits.
type Scope string

const (
	// Read permits what changes nothing: GET and HEAD, and WebSockets.
	Read Scope = "read"
	// Submit permits everything else that a tenant may do: prompts, uploads, cancelling,
	// workflows and settings.
	Submit Scope = "submit"
	// Admin makes an operator of whoever has the key. It contains the other two.
	Admin Scope = "admin"
	// ActForTenants lets a program that serves many people, such as a bot, name the tenant
	// of each request. No other scope contains it. A key that is made with this scope alone
	// has Submit and Read as well.
	ActForTenants Scope = "act_for_tenants"
)

// Limits are those of a key's tenant. What is zero is not limited by the key.
type Limits struct {
	// Weight is the tenant's share of the instances' time beside others, from 0.001 to 1000.
	Weight float64 `json:"weight,omitempty"`
	// Running bounds its runs at one time, Waiting its waiting jobs.
	Running int `json:"running,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	// GPUSeconds bounds the time of instances that it may use within 24 hours.
	GPUSeconds int `json:"gpu_seconds,omitempty"`
	// Rate bounds its prompts a minute.
	Rate int `json:"rate,omitempty"`
}

// Key is an API key, without its secret.
type Key struct {
	// Name identifies the key.
	Name string `json:"name"`
	// Tenant is whom requests with the key belong to.
	Tenant string `json:"tenant"`
	// Scopes say what the key permits.
	Scopes []Scope `json:"scopes"`
	Limits
	// Created and Expires are in milliseconds since the Unix epoch, by Redis's clock; a key
	// whose Expires is 0 does not expire.
	Created int64 `json:"created"`
	Expires int64 `json:"expires,omitempty"`
	// Used is when the key was used last, at any hub and to the minute; 0 if it never was.
	Used int64 `json:"used,omitempty"`
}

// May reports whether the key permits something.
func (k Key) May(s Scope) bool {
	return slices.Contains(k.Scopes, s) || s != ActForTenants && slices.Contains(k.Scopes, Admin)
}

// expired reports whether the key is not valid any more.
func (k Key) expired(now time.Time) bool { return k.Expires > 0 && now.UnixMilli() >= k.Expires }

const (
	// maxName bounds the name of a key, in bytes.
	maxName = 64
	// maxTenant bounds that of a tenant.
	maxTenant = 256
	// maxCount bounds the limits of a key.
	maxCount = math.MaxInt32
)

// Wanted is a key that an operator asks for.
type Wanted struct {
	Name string
	// Tenant is the key's; empty means its name.
	Tenant string
	// Scopes are the key's; nil means Submit and Read.
	Scopes []Scope
	Limits Limits
	// Life is how long the key is valid; 0 means without end.
	Life time.Duration
}

// maxLife bounds the life of a key that has an end.
const maxLife = 100 * 365 * 24 * time.Hour

// key checks what is wanted and returns the key. An error is the operator's.
func (w Wanted) key() (Key, error) {
	k := Key{Name: w.Name, Tenant: w.Tenant, Scopes: w.Scopes, Limits: w.Limits}
	if k.Tenant == "" {
		k.Tenant = k.Name
	}
	if k.Scopes == nil {
		k.Scopes = []Scope{Submit, Read}
	}
	if err := CheckName(k.Name); err != nil {
		return Key{}, err
	}
	if err := checkTenant(k.Tenant); err != nil {
		return Key{}, err
	}
	if len(k.Scopes) == 0 {
		return Key{}, errors.New("scope: none is given")
	}
	for n, s := range k.Scopes {
		if !slices.Contains([]Scope{Submit, Read, Admin, ActForTenants}, s) {
			return Key{}, fmt.Errorf("scope: %q is not one of submit, read, admin, act_for_tenants", string(s))
		}
		if slices.Contains(k.Scopes[:n], s) {
			return Key{}, fmt.Errorf("scope: %s is given twice", s)
		}
	}
	if len(k.Scopes) == 1 && k.Scopes[0] == ActForTenants {
		k.Scopes = []Scope{Submit, Read, ActForTenants}
	}
	if w.Life < 0 || w.Life > maxLife {
		return Key{}, errors.New("expires: not a time in the next 100 years")
	}
	return k, k.check()
}

// check tells what is wrong with limits.
func (l Limits) check() error {
	if l.Weight != 0 && !(l.Weight >= 0.001 && l.Weight <= 1000) {
		return errors.New("weight: not a number from 0.001 to 1000")
	}
	for _, limit := range []struct {
		word  string
		value int
	}{{"running", l.Running}, {"waiting", l.Waiting}, {"gpu_seconds", l.GPUSeconds}, {"rate", l.Rate}} {
		if limit.value < 0 || limit.value > maxCount {
			return fmt.Errorf("%s: not a whole number from 1 to %d", limit.word, maxCount)
		}
	}
	return nil
}

// but returns the limits with those of a newer key in their place, as far as it has any.
func (l Limits) but(newer Limits) Limits {
	for _, limit := range []struct{ now, newer *int }{
		{&l.Running, &newer.Running}, {&l.Waiting, &newer.Waiting}, {&l.GPUSeconds, &newer.GPUSeconds}, {&l.Rate, &newer.Rate},
	} {
		if *limit.newer != 0 {
			*limit.now = *limit.newer
		}
	}
	if newer.Weight != 0 {
		l.Weight = newer.Weight
	}
	return l
}

// CheckName tells what is wrong with the name of a key.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-@", r)
	})
	switch {
	case IsSecret(name):
		return errors.New("name: this looks like the secret of a key")
	case !ok:
		return fmt.Errorf("name: want 1 to %d letters, digits, and . _ - @", maxName)
	}
	return nil
}

// checkTenant refuses names that would not be a login's: the tenant of those who have none
// is called "default", and a login of that name is called otherwise.
func checkTenant(tenant string) error {
	switch {
	case len(tenant) > maxTenant || !utf8.ValidString(tenant) || strings.ContainsFunc(tenant, unicode.IsControl):
		return fmt.Errorf("tenant: want at most %d bytes, without control characters", maxTenant)
	case tenant == "default" || strings.HasPrefix(tenant, "login:"):
		return fmt.Errorf("tenant: %q is the hub's own name for somebody", tenant)
	case IsSecret(tenant):
		return errors.New("tenant: this looks like the secret of a key")
	}
	return nil
}

// stored is a key as it is in Redis.
type stored struct {
	Key
	// Hash is that of the secret, in hexadecimal digits.
	Hash string `json:"hash"`
}

// decode reads what is stored of a key; the time of its last use is elsewhere.
func decode(text string) (Key, hash, error) {
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Key{}, hash{}, fmt.Errorf("apikeys: a stored key: %w", err)
	}
	sum, err := hex.DecodeString(s.Hash)
	if err != nil || len(sum) != len(hash{}) || s.Name == "" || s.Tenant == "" {
		return Key{}, hash{}, errors.New("apikeys: a stored key is broken")
	}
	return s.Key, hash(sum), nil
}
