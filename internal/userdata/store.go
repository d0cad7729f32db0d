package userdata

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"time"
)

// Storage keeps blobs by key. For a missing blob the error wraps fs.ErrNotExist,
// except in Delete.
type Storage interface {
	// Write stores all of r, completely or not at all, and returns its length.
	Write(ctx context.Context, key string, r io.Reader) (int64, error)
	// OpenSized reads length bytes from offset on, or all that follow if length is
	// negative. A blob of another size is missing, unless size is negative.
	OpenSized(ctx context.Context, key string, size, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, key string) (Blob, error)
	Delete(ctx context.Context, key string) error
	// List calls each for every blob whose key begins with prefix, in order of the
	// keys.
	List(ctx context.Context, prefix string, each func(Blob) error) error
}

// Blob is what a Storage knows of a blob.
type Blob struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Store is the user folders of all tenants. It is safe for concurrent use. If two
// hubs change one user's settings at the same moment, the changes are not merged:
// the later one wins.
type Store struct {
	storage Storage
	limits  func(tenant string) Limits
	turns   turns
	usage   usages
}

// New returns a Store on a storage; limits may be nil for none.
func New(storage Storage, limits func(tenant string) Limits) *Store {
	if limits == nil {
		limits = func(string) Limits { return Limits{} }
	}
	return &Store{storage: storage, limits: limits}
}

// DefaultUser is the user if there is only one.
const DefaultUser = "default"

// Folder returns one user's folder; it need not exist.
func (s *Store) Folder(tenant, user string) Folder {
	return Folder{store: s, tenant: tenant, prefix: tenantPrefix(tenant) + keySegment(user) + "/"}
}

func tenantPrefix(tenant string) string { return "user/" + keySegment(tenant) + "/" }

// Folder is the folder of one user.
//
// Many methods: one method for each thing that a user does with files and settings,
// beside the few that they share; it holds no state.
type Folder struct {
	store  *Store
	tenant string
	prefix string
}

func (f Folder) fileKey(p Path) string { return f.prefix + "f/" + string(p) }

// folderKey marks a folder. Each segment ends with a character that the mark's own
// name does not have, so that no mark can be mistaken for a folder.
func (f Folder) folderKey(p Path) string {
	return f.prefix + "d/" + strings.ReplaceAll(string(p), "/", "+/") + "+/="
}

// pathOfMark undoes folderKey.
func (f Folder) pathOfMark(key string) Path {
	p := strings.TrimSuffix(strings.TrimPrefix(key, f.prefix+"d/"), "+/=")
	return Path(strings.ReplaceAll(p, "+/", "/"))
}

// turn prevents other changes of the tenant until leave is called: its users share
// its limits. The error is the context's.
func (f Folder) turn(ctx context.Context) (leave func(), err error) {
	return f.store.turns.take(ctx, f.tenant)
}

// keySegment turns any text into part of a key: plain names stay as they are, so
// that an operator can find them; all others are hashed. Capitals are hashed, too,
// because some file systems do not tell them from lower-case letters.
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
