package run

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/split"
)

// batchKey is the key of the job that makes the nth of some parts of a batch.
func batchKey(parent uuid.UUID, n, parts int) string {
	return uuid.NewSHA1(parent, []byte(strconv.Itoa(n)+"/"+strconv.Itoa(parts))).String()
}

// variant are the two bits of a UUID that say how to read it; see [split.MaxOutputs].
const variant = 1 << 63

// outputsKey is the key of the job that makes some outputs of another one. It says which, so that the
// next run of that job has the same parts, whatever its hub has learned about how long they take.
func outputsKey(parent uuid.UUID, set split.Outputs) string {
	sum := sha256.Sum256(parent[:])
	key := uuid.UUID(sum[:16])
	key[6] = key[6]&0x0f | 8<<4 // a version for what the others do not know
	binary.BigEndian.PutUint64(key[8:], uint64(set)|variant)
	return key.String()
}

// outputsOfKeys returns what the jobs of some keys make; false if they are not parts of this kind.
func outputsOfKeys(parent uuid.UUID, keys []string) (sets []split.Outputs, ok bool) {
	for _, text := range keys {
		key, err := uuid.Parse(text)
		if err != nil {
			return nil, false
		}
		set := split.Outputs(binary.BigEndian.Uint64(key[8:]) &^ variant)
		if outputsKey(parent, set) != text {
			return nil, false
		}
		sets = append(sets, set)
	}
	return sets, true
}
