package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// revokedPrefix begins the names of objects that say which records do not count any more.
// The time follows, and the hash of the kind and the id.
const revokedPrefix = "revoked-"

var revokedForm = regexp.MustCompile(`^` + revokedPrefix + `([0-9]{1,12})-([0-9a-f]{32})$`)

// revocations are the hashes of what was revoked. They are replaced as a whole.
type revocations map[string]bool

func (r *Records) revocation(id string) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(r.kind)) + ":" + r.kind + id))
	return hex.EncodeToString(sum[:16])
}

// Revoke ends the validity of the records with an id, for which the caller has made it: a
// record that has it must not be used, even if somebody puts it back where it was and its
// mark is right. Other hubs know within half a minute, or once they call Refresh of the
// ring. Errors: ErrUnavailable, after which nothing is revoked.
func (r *Records) Revoke(ctx context.Context, id string) error {
	if r.Revoked(id) {
		return nil
	}
	ring, hash := r.ring, r.revocation(id)
	name := revokedPrefix + strconv.FormatInt(ring.now().Unix(), 10) + "-" + hash
	if err := ring.store.Write(ctx, name, []byte("{}\n")); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	revoke(&ring.revoked, hash)
	return nil
}

// Revoked reports whether Revoke was called for an id, at any hub.
func (r *Records) Revoked(id string) bool { return (*r.ring.revoked.Load())[r.revocation(id)] }

// Refresh reads from the store what other hubs have revoked. Errors: ErrUnavailable.
func (r *Records) Refresh(ctx context.Context) error { return r.ring.Refresh(ctx) }

// Revocations counts what was revoked: while it stays the same, so do the answers of
// Revoked.
func (r *Records) Revocations() int { return len(*r.ring.revoked.Load()) }

// noteRevoked takes in what the store lists. What this hub has revoked stays so: a listing
// that began earlier may lack it.
func (r *Ring) noteRevoked(names []string) {
	var hashes []string
	for _, name := range names {
		if part := revokedForm.FindStringSubmatch(name); part != nil {
			hashes = append(hashes, part[2])
		}
	}
	revoke(&r.revoked, hashes...)
}

func revoke(all *atomic.Pointer[revocations], hashes ...string) {
	for {
		before := all.Load()
		now := maps.Clone(*before)
		for _, hash := range hashes {
			now[hash] = true
		}
		if len(now) == len(*before) || all.CompareAndSwap(before, &now) {
			return
		}
	}
}

// expireRevoked deletes the revocations of records that no key of the ring can have signed:
// all its keys are younger. The caller has the turn.
func (r *Ring) expireRevoked(ctx context.Context) error {
	keys := *r.keys.Load()
	if len(keys) == 0 {
		return nil
	}
	names, err := r.store.List(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, name := range names {
		part := revokedForm.FindStringSubmatch(strings.TrimSpace(name))
		if part == nil {
			continue
		}
		// Clocks of hubs differ; that of another one may have been behind.
		at, err := strconv.ParseInt(part[1], 10, 64)
		if err != nil || !time.Unix(at, 0).Add(Keep).Before(keys[0].created) {
			continue
		}
		if err := r.store.Delete(ctx, name); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return nil
}
