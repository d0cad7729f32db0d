package queue

import (
	"embed"

	"github.com/comfyhub/comfyhub/internal/redis"
)

//go:embed scripts/*.lua
var sources embed.FS

// The scripts of the queue. Those that accept or end jobs are durable.
var (
	enqueueScript       = script("enqueue", redis.Replicated, "bands", "shares", "caps", "lib", "order", "numbers", "rank")
	numberScript        = script("number", redis.Write, "numbers")
	windowScript        = script("window", redis.ReadOnly, "bands", "shares", "caps", "lib", "order")
	stopScript          = script("stop", redis.Durable)
	deadlinesScript     = script("deadlines", redis.ReadOnly)
	usageScript         = script("usage", redis.ReadOnly, "caps")
	positionScript      = script("position", redis.ReadOnly, "bands", "shares", "caps", "lib", "order")
	claimScript         = script("claim", redis.Write, "bands", "shares", "caps", "lib")
	startedScript       = script("started", redis.Write, "bands", "shares", "caps", "lib")
	progressScript      = script("progress", redis.Write, "bands", "shares", "caps", "lib")
	renewScript         = script("renew", redis.Write, "bands", "shares", "caps", "lib")
	releaseScript       = script("release", redis.Write, "bands", "shares", "caps", "lib")
	requeueScript       = script("requeue", redis.Write, "bands", "shares", "caps", "lib")
	reasonScript        = script("reason", redis.Write, "bands", "shares", "caps", "lib")
	steerScript         = script("steer", redis.Durable, "bands", "shares", "caps", "lib", "numbers", "rank")
	adoptScript         = script("adopt", redis.Write, "bands", "shares", "caps", "lib")
	inheritScript       = script("inherit", redis.Write, "bands", "shares", "caps", "lib")
	beatScript          = script("beat", redis.Write)
	quitScript          = script("quit", redis.Write)
	sweepScript         = script("sweep", redis.Write, "bands", "shares", "caps", "lib", "withdraw")
	cancelScript        = script("cancel", redis.Durable, "bands", "shares", "caps", "lib", "withdraw")
	cancelWaitingScript = script("cancel_waiting", redis.Durable, "bands", "shares", "caps", "lib", "withdraw")
	rejectScript        = script("reject", redis.Durable, "bands", "shares", "caps", "lib", "withdraw")
	admitScript         = script("admit", redis.Write, "bands", "shares", "caps", "lib")
	learnScript         = script("learn", redis.Write)
	measuredScript      = script("measured", redis.Write)
	durationsScript     = script("durations", redis.ReadOnly)
	finishScript        = script("finish", redis.Durable, "bands", "shares", "caps", "lib", "history")
	failWaitingScript   = script("fail_waiting", redis.Durable, "bands", "shares", "caps", "lib", "history")
	forgetScript        = script("forget", redis.Durable, "bands", "shares", "caps", "lib", "history")
	recountScript       = script("recount", redis.Write, "bands", "shares", "caps", "lib", "history")
	expireScript        = script("expire", redis.Write, "bands", "shares", "caps", "lib", "history")
	restoreScript       = script("restore", redis.Durable, "bands", "shares", "caps", "lib", "history")
	deliveredScript     = script("delivered", redis.Write, "bands", "shares", "caps", "lib", "history")
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
