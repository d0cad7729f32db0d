package queue

import (
	"embed"

	"github.com/comfyhub/comfyhub/internal/redis"
)

//go:embed scripts/*.lua
var sources embed.FS

// The scripts of the queue. Those that accept or end jobs are durable.
var (
	enqueueScript       = script("enqueue", redis.Durable, "lib", "numbers")
	numberScript        = script("number", redis.Write, "numbers")
	claimScript         = script("claim", redis.Write, "lib")
	startedScript       = script("started", redis.Write, "lib")
	progressScript      = script("progress", redis.Write, "lib")
	renewScript         = script("renew", redis.Write, "lib")
	releaseScript       = script("release", redis.Write, "lib")
	requeueScript       = script("requeue", redis.Write, "lib")
	reasonScript        = script("reason", redis.Write, "lib")
	priorityScript      = script("priority", redis.Write, "lib")
	adoptScript         = script("adopt", redis.Write, "lib")
	inheritScript       = script("inherit", redis.Write, "lib")
	beatScript          = script("beat", redis.Write)
	quitScript          = script("quit", redis.Write)
	sweepScript         = script("sweep", redis.Write, "lib", "withdraw")
	cancelScript        = script("cancel", redis.Durable, "lib", "withdraw")
	cancelWaitingScript = script("cancel_waiting", redis.Durable, "lib", "withdraw")
	rejectScript        = script("reject", redis.Durable, "lib", "withdraw")
	admitScript         = script("admit", redis.Write, "lib")
	learnScript         = script("learn", redis.Write)
	finishScript        = script("finish", redis.Durable, "lib", "history")
	failWaitingScript   = script("fail_waiting", redis.Durable, "lib", "history")
	forgetScript        = script("forget", redis.Durable, "lib", "history")
	recountScript       = script("recount", redis.Write, "lib", "history")
	expireScript        = script("expire", redis.Write, "lib", "history")
	restoreScript       = script("restore", redis.Durable, "lib", "history")
	deliveredScript     = script("delivered", redis.Write, "lib", "history")
)

// script returns a script made of files in scripts/: libraries, then its own.
func script(name string, mode redis.Mode, libraries ...string) *redis.Script {
	parts := make([]string, 0, len(libraries)+1)
	for _, part := range append(libraries, name) {
		text, err := sources.ReadFile("scripts/" + part + ".lua")
		if err != nil {
			panic(err) // the file is missing from the binary: no test would pass
		}
		parts = append(parts, string(text))
	}
	return redis.NewScript("queue/"+name, mode, parts...)
}
