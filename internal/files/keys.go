package files

import (
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// The keys in Redis. Packed parts may contain any bytes.

// folderKey names the hash of a folder's entries by file name.
func (s *Store) folderKey(tenant string, p place) string {
	return s.db.Key("files", "folder", redis.Pack(tenant, p.typ, p.dir))
}

// numbersKey names the hash of a folder's highest counter by prefix.
func (s *Store) numbersKey(tenant string, p place) string {
	return s.db.Key("files", "numbers", redis.Pack(tenant, p.typ, p.dir))
}

// foldersKey names the set of a type's subfolders that have files.
func (s *Store) foldersKey(tenant, typ string) string {
	return s.db.Key("files", "folders", redis.Pack(tenant, typ))
}

// knownKey names the hash of the names given to the files of one instance.
func (s *Store) knownKey(tenant string, src Source) string {
	return s.db.Key("files", "known", redis.Pack(tenant, src.Instance, src.Boot))
}

// The scripts have one more hash per tenant, files:uploads:TENANT, with what its uploads take up.

// atKey names the hash of what is known to be on an instance.
func (s *Store) atKey(instance string) string {
	return s.db.Key("files", "at", redis.Pack(instance))
}

// usedKey names the index of the last use of files of a type.
func (s *Store) usedKey(typ string) string {
	if typ != job.TypeInput {
		typ = job.TypeOutput
	}
	return s.db.Key("files", "used", typ)
}

// ownKey names the index of the last use of a tenant's outputs, sharesKey the zset of tenants by
// how much these take up.
func (s *Store) ownKey(tenant string) string { return s.db.Key("files", "outputs", tenant) }

func (s *Store) sharesKey() string { return s.db.Key("files", "shares") }

// Blobs in the storage: by content if the content is known beforehand, else by a name that is never
// used again. Two letters of fan-out keep folders small.
const (
	contentPrefix = "content/"
	outputPrefix  = "output/"
	markKey       = "comfyhub-mark"
)

func contentKey(sha256 string) string { return contentPrefix + sha256[:2] + "/" + sha256 }

func outputKey(id string) string { return outputPrefix + id[:2] + "/" + id }
