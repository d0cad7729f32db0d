package apikeys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/keyring"
)

// Refused is a record in Redis that is no key.
type Refused struct {
	// Name is that of the record; anybody may have made it up.
	Name string
	// Why says what is wrong with it.
	Why string
}

// maxRefused bounds the records that are told about.
const maxRefused = 100

var (
	errElsewhere = errors.New("it was signed for another place")
	errRevoked   = errors.New("it was revoked")
)

// sign returns the value of a key as Redis has it.
func (k *Keys) sign(key Key, sum hash) (string, error) {
	text, err := json.Marshal(stored{Key: key, Hash: sum.String()})
	if err != nil {
		return "", fmt.Errorf("apikeys: %w", err)
	}
	signed, err := k.records.Sign(key.Name, text)
	if err != nil {
		return "", fmt.Errorf("apikeys: %w", err)
	}
	return valueOf(key.Expires, signed), nil
}

// valueOf puts before a record what the scripts need to know of it.
func valueOf(expires int64, record []byte) string {
	return strconv.FormatInt(expires, 10) + " " + string(record)
}

// open returns the key of a value, if a hub has signed it for this name. stale says that it
// has to be signed again.
func (k *Keys) open(ctx context.Context, name, value string) (key valid, stale bool, err error) {
	_, text, _ := strings.Cut(value, " ") // when it expires is for the scripts
	record, stale, err := k.records.Verify(ctx, name, []byte(text))
	if err != nil {
		return valid{}, false, err
	}
	if key.Key, key.hash, err = decode(string(record)); err != nil {
		return valid{}, false, err
	}
	if key.Name != name {
		return valid{}, false, errElsewhere
	}
	return key, stale, nil
}

// valid is a key that a hub has signed.
type valid struct {
	Key
	hash hash
}

// checked are the records of Redis, judged.
type checked struct {
	valid   []valid
	refused []Refused
	// again says that some could not be judged.
	again bool
}

// check judges records. What was revoked at another hub may have been put back before this
// one has heard of it, so a key that was not known counts only after a look at the storage.
func (k *Keys) check(ctx context.Context, pairs []string, before *known) (checked, error) {
	var c checked
	news := before == nil
	for pair := range slices.Chunk(pairs, 2) {
		key, _, err := k.open(ctx, pair[0], pair[1])
		switch {
		case errors.Is(err, keyring.ErrUnavailable):
			c.again = true
		case err != nil:
			c.refuse(pair[0], err)
		default:
			news = news || before.byHash[key.hash] == nil
			c.valid = append(c.valid, key)
		}
	}
	if news {
		switch err := k.records.Refresh(ctx); {
		case err == nil:
		case before == nil:
			return c, fmt.Errorf("apikeys: %w", err)
		default:
			c.again = true
			c.valid = slices.DeleteFunc(c.valid, func(key valid) bool { return before.byHash[key.hash] == nil })
		}
	}
	c.valid = slices.DeleteFunc(c.valid, func(key valid) bool {
		revoked := k.records.Revoked(key.hash.String())
		if revoked {
			c.refuse(key.Name, errRevoked)
		}
		return revoked
	})
	return c, nil
}

func (c *checked) refuse(name string, err error) {
	if len(c.refused) < maxRefused {
		c.refused = append(c.refused, Refused{fmt.Sprintf("%.*s", maxName, name), err.Error()})
	}
}

// Refused returns the records in Redis that this hub refuses, at most a hundred: somebody
// else has written them, or a hub of a version that does not sign.
func (k *Keys) Refused() []Refused {
	if now := k.known.Load(); now != nil {
		return now.refused
	}
	return nil
}

// Adopt signs the keys that a version before the signatures has made. It does so once in the
// life of a storage; see [keyring.Records.Adopt].
func (k *Keys) Adopt(ctx context.Context) error {
	return k.records.Adopt(ctx, keyring.MarksOfKeys, func(ctx context.Context) error {
		return k.each(ctx, func(name, value string) (string, error) {
			_, text, _ := strings.Cut(value, " ")
			_, _, err := k.open(ctx, name, value)
			if !errors.Is(err, keyring.ErrUnsigned) {
				return value, nil
			}
			key, sum, err := decode(text)
			if err != nil || key.Name != name {
				return value, nil // it was no key before, either
			}
			return k.sign(key, sum)
		})
	})
}

// SignAgain signs the keys again whose signature will not be valid for ever; see
// [keyring.Records].
func (k *Keys) SignAgain(ctx context.Context) error {
	return k.each(ctx, func(name, value string) (string, error) {
		key, stale, err := k.open(ctx, name, value)
		if err != nil || !stale {
			return value, nil //nolint:nilerr // what is no key does not become one
		}
		return k.sign(key.Key, key.hash)
	})
}

// each replaces the values of records, unless they change meanwhile.
func (k *Keys) each(ctx context.Context, replace func(name, value string) (string, error)) error {
	reply, err := k.db.Run(ctx, readScript, "")
	if err != nil {
		return fmt.Errorf("apikeys: %w", err)
	}
	for pair := range slices.Chunk(reply, 2) {
		if len(pair) < 2 || pair[0] == reply[0] && pair[1] == reply[1] {
			continue // the version and the time
		}
		value, err := replace(pair[0], pair[1])
		if err != nil {
			return err
		}
		if value == pair[1] {
			continue
		}
		if _, err := k.db.Run(ctx, signScript, pair[0], pair[1], value); err != nil {
			return fmt.Errorf("apikeys: %w", err)
		}
	}
	return nil
}
