package files

// meeting is what is known when a Redis and a storage meet.
type meeting struct {
	redis, stored tied
	// blobs is how many blobs were found in the storage, of at most bondSample, and
	// named how many of them have a name in Redis. Both are only known if the ids differ.
	blobs, named int
	// young says that the storage got its id a moment ago.
	young bool
}

// outcome is what becomes of a meeting.
type outcome string

const (
	together  outcome = "together"
	join      outcome = "join"   // both get the id of Redis, a new one if it has none
	recall    outcome = "recall" // Redis gets the id of the storage
	strangers outcome = "strangers"
)

// judge decides by the table of Bond. reason is that of strangers.
func (m meeting) judge() (what outcome, reason string) {
	switch {
	case m.redis.id != "" && m.redis.id == m.stored.id:
		if m.stored.beat > m.redis.beat+1 {
			return strangers, "Redis is in a state of some hours before, and does not know the files since"
		}
		return together, ""
	case m.blobs == 0:
		return join, ""
	case m.stored.id == "" && m.known():
		return join, ""
	case m.stored.id == "" && m.redis.id == "":
		return strangers, "the storage has files, and this Redis does not know them"
	case m.stored.id == "":
		return strangers, "the storage has files of others"
	case m.redis.id == "" && m.known() && m.young:
		return recall, ""
	case m.redis.id == "":
		return strangers, "the storage belongs to another Redis, or this one has lost everything"
	}
	return strangers, "the storage belongs to another Redis, and this Redis to another storage"
}

// known reports whether most of the storage's blobs have a name in Redis. Some have none:
// those that jobs still need, or that a killed hub has left.
func (m meeting) known() bool { return 2*m.named >= m.blobs }
