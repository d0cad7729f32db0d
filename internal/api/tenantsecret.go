package api

import (
	"crypto/sha256"
	"crypto/subtle"
)

// TenantSecret is what a program that serves many people shows to name the tenant of each
// request, and nothing more: it makes nobody an operator. Only its hash is kept. The zero
// value is shown by nobody.
type TenantSecret struct {
	hash [sha256.Size]byte
	set  bool
}

// NewTenantSecret returns the secret of a text; there is none if it is empty.
func NewTenantSecret(text string) TenantSecret {
	return TenantSecret{hash: sha256.Sum256([]byte(text)), set: text != ""}
}

// Is reports whether a text is the secret. How long that takes tells nothing about it.
func (s TenantSecret) Is(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return s.set && subtle.ConstantTimeCompare(s.hash[:], sum[:]) == 1
}
