package apikeys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
)

// Prefix begins every secret, so that people and scanners of source code recognize one.
const Prefix = "comfyhub_"

const (
	// secretBytes are random.
	secretBytes = 32
	// secretLength is that of a secret, in bytes: the prefix, 52 digits for the random
	// bytes and 7 for their checksum.
	secretLength = len(Prefix) + 52 + 7
)

// digits are those of a secret: lower case letters and 2 to 7, which survive being typed,
// selected with a double click and put into a URL.
var digits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newSecret makes the secret of a key.
func newSecret() string {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	text := Prefix + digits.EncodeToString(random)
	return text + checksum(text)
}

// checksum finds secrets that were not copied whole.
func checksum(text string) string {
	return digits.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text))))
}

// IsSecret reports whether a text looks like the secret of a key, well-formed or not. What
// does not is somebody else's password or token.
func IsSecret(text string) bool { return strings.HasPrefix(text, Prefix) }

// wellFormed reports whether a text can be a secret: it is complete, and mistyped nowhere.
func wellFormed(text string) bool {
	if len(text) != secretLength || !IsSecret(text) {
		return false
	}
	body, sum := text[:secretLength-7], text[secretLength-7:]
	return checksum(body) == sum
}

// hash is what is stored of a secret. A secret has 256 random bits, so that a fast hash is
// as good as a slow one.
type hash [sha256.Size]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

func hashOf(secret string) hash { return sha256.Sum256([]byte(secret)) }
