package files

import (
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// keys name what is in Redis. Packed parts may contain any bytes. The scripts have one more hash per
// tenant, files:uploads:TENANT, with what its uploads take up.
type keys struct{ db *redis.DB }

// folder names the hash of a folder's entries by file name.
func (k keys) folder(tenant string, p place) string {
	return k.db.Key("files", "folder", redis.Pack(tenant, p.typ, p.dir))
}

// numbers names the hash of a folder's highest counter by prefix.
func (k keys) numbers(tenant string, p place) string {
	return k.db.Key("files", "numbers", redis.Pack(tenant, p.typ, p.dir))
}

// folders names the set of a type's subfolders that have files.
func (k keys) folders(tenant, typ string) string {
	return k.db.Key("files", "folders", redis.Pack(tenant, typ))
}

// known names the hash of the names given to the files of one instance.
func (k keys) known(tenant string, src Source) string {
	return k.db.Key("files", "known", redis.Pack(tenant, src.Instance, src.Boot))
}

// at names the hash of what is known to be on an instance.
func (k keys) at(instance string) string {
	return k.db.Key("files", "at", redis.Pack(instance))
}

// used names the index of the last use of files of a type.
func (k keys) used(typ string) string {
	if typ != job.TypeInput {
		typ = job.TypeOutput
	}
	return k.db.Key("files", "used", typ)
}

// outputs names the index of the last use of a tenant's outputs, shares the zset of tenants by how
// much these take up.
func (k keys) outputs(tenant string) string { return k.db.Key("files", "outputs", tenant) }

func (k keys) shares() string { return k.db.Key("files", "shares") }

// trash names the names in a tenant's trash by when their time is over.
func (k keys) trash(tenant string) string { return k.db.Key("files", "trash", tenant) }

// Blobs in the storage: by content if the content is known beforehand, else by a name that is never
// used again. Two letters of fan-out keep folders small.
const (
	contentPrefix = "content/"
	outputPrefix  = "output/"
	markKey       = "comfyhub-mark"
)

func contentKey(sha256 string) string { return contentPrefix + sha256[:2] + "/" + sha256 }

func outputKey(id string) string { return outputPrefix + id[:2] + "/" + id }
