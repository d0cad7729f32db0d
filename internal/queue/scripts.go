package queue

import (
	"embed"

	"github.com/comfyhub/comfyhub/internal/redis"
)

//go:embed scripts/*.lua
var sources embed.FS

// The scripts of the queue. Those that accept or end jobs are durable.
var (
	enqueueScript       = script("enqueue", redis.Durable, "shares", "lib", "order", "numbers")
	numberScript        = script("number", redis.Write, "numbers")
	windowScript        = script("window", redis.ReadOnly, "shares", "lib", "order")
	positionScript      = script("position", redis.ReadOnly, "shares", "lib", "order")
	claimScript         = script("claim", redis.Write, "shares", "lib")
	startedScript       = script("started", redis.Write, "shares", "lib")
	progressScript      = script("progress", redis.Write, "shares", "lib")
	renewScript         = script("renew", redis.Write, "shares", "lib")
	releaseScript       = script("release", redis.Write, "shares", "lib")
	requeueScript       = script("requeue", redis.Write, "shares", "lib")
	reasonScript        = script("reason", redis.Write, "shares", "lib")
	priorityScript      = script("priority", redis.Write, "shares", "lib")
	adoptScript         = script("adopt", redis.Write, "shares", "lib")
	inheritScript       = script("inherit", redis.Write, "shares", "lib")
	beatScript          = script("beat", redis.Write)
	quitScript          = script("quit", redis.Write)
	sweepScript         = script("sweep", redis.Write, "shares", "lib", "withdraw")
	cancelScript        = script("cancel", redis.Durable, "shares", "lib", "withdraw")
	cancelWaitingScript = script("cancel_waiting", redis.Durable, "shares", "lib", "withdraw")
	rejectScript        = script("reject", redis.Durable, "shares", "lib", "withdraw")
	admitScript         = script("admit", redis.Write, "shares", "lib")
	learnScript         = script("learn", redis.Write)
	measuredScript      = script("measured", redis.Write)
	durationsScript     = script("durations", redis.ReadOnly)
	finishScript        = script("finish", redis.Durable, "shares", "lib", "history")
	failWaitingScript   = script("fail_waiting", redis.Durable, "shares", "lib", "history")
	forgetScript        = script("forget", redis.Durable, "shares", "lib", "history")
	recountScript       = script("recount", redis.Write, "shares", "lib", "history")
	expireScript        = script("expire", redis.Write, "shares", "lib", "history")
	restoreScript       = script("restore", redis.Durable, "shares", "lib", "history")
	deliveredScript     = script("delivered", redis.Write, "shares", "lib", "history")
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
