package userdata

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"io"
	"strings"
	"sync"
	"time"
)

// Storage keeps blobs by key. A blob that is missing is an error that wraps
// fs.ErrNotExist, except to Delete.
type Storage interface {
	// Write stores all of r, whole or not at all, and returns its length.
	Write(ctx context.Context, key string, r io.Reader) (int64, error)
	// Open reads length bytes from offset on, all that follow if it is negative.
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, key string) (Blob, error)
	Delete(ctx context.Context, key string) error
	// List calls each for every blob whose key begins with prefix, in order
	// of the keys.
	List(ctx context.Context, prefix string, each func(Blob) error) error
}

// Blob is what a Storage knows of a blob.
type Blob struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Store is the user folders of all tenants. It is safe for concurrent use.
// Changes of one user's settings through two hubs at the same moment are not
// merged: the later one counts.
type Store struct {
	storage Storage
	limits  func(tenant string) Limits
	seed    maphash.Seed
	// locks order what reads and then writes, by tenant.
	locks [64]sync.Mutex
	usage usages
}

// New makes a Store on a storage; limits may be nil for none.
func New(storage Storage, limits func(tenant string) Limits) *Store {
	if limits == nil {
		limits = func(string) Limits { return Limits{} }
	}
	return &Store{storage: storage, limits: limits, seed: maphash.MakeSeed()}
}

// DefaultUser is the user where there is only one.
const DefaultUser = "default"

// Folder is one user's folder; it need not exist.
func (s *Store) Folder(tenant, user string) Folder {
	return Folder{store: s, tenant: tenant, prefix: tenantPrefix(tenant) + keySegment(user) + "/"}
}

func tenantPrefix(tenant string) string { return "user/" + keySegment(tenant) + "/" }

// Folder is the folder of one user.
type Folder struct {
	store  *Store
	tenant string
	prefix string
}

func (f Folder) fileKey(p Path) string { return f.prefix + "f/" + string(p) }

// folderKey marks a folder. Each segment ends in a sign that the mark's own
// name does not have, so that no mark can be taken for a folder.
func (f Folder) folderKey(p Path) string {
	return f.prefix + "d/" + strings.ReplaceAll(string(p), "/", "+/") + "+/="
}

// pathOfMark undoes folderKey.
func (f Folder) pathOfMark(key string) Path {
	p := strings.TrimSuffix(strings.TrimPrefix(key, f.prefix+"d/"), "+/=")
	return Path(strings.ReplaceAll(p, "+/", "/"))
}

// lock keeps others from changing anything of the tenant until the returned
// function is called: what its users may store they share.
func (f Folder) lock() (unlock func()) {
	m := &f.store.locks[maphash.String(f.store.seed, f.tenant)%uint64(len(f.store.locks))]
	m.Lock()
	return m.Unlock
}

// keySegment makes a part of a key of any text: names of a plain kind as they
// are, so that an operator finds them, all others by their hash. Capitals are
// hashed, because some file systems do not tell them from small letters.
func keySegment(name string) string {
	plain := name != "" && len(name) <= 100 && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '@' || r == '.')
	})
	if plain && name[0] != '.' {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "=" + hex.EncodeToString(sum[:16])
}
