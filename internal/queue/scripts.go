package queue

import (
	"embed"
	"slices"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/stats"
)

//go:embed scripts/*.lua
var sources embed.FS

// The scripts of the queue. Those that accept or end jobs are durable.
var (
	enqueueScript       = jobScript("enqueue", redis.Replicated, "order", "numbers", "rank")
	numberScript        = script("number", redis.Write, "numbers")
	windowScript        = jobScript("window", redis.ReadOnly, "wanted", "order")
	stopScript          = script("stop", redis.Durable)
	deadlinesScript     = script("deadlines", redis.ReadOnly)
	usageScript         = script("usage", redis.ReadOnly, "caps")
	positionScript      = jobScript("position", redis.ReadOnly, "order")
	claimScript         = jobScript("claim", redis.Write)
	startedScript       = jobScript("started", redis.Write)
	progressScript      = jobScript("progress", redis.Write)
	renewScript         = jobScript("renew", redis.Write)
	releaseScript       = jobScript("release", redis.Write)
	requeueScript       = jobScript("requeue", redis.Write)
	preemptScript       = jobScript("preempt", redis.Write)
	steerScript         = jobScript("steer", redis.Durable, "numbers", "rank")
	adoptScript         = jobScript("adopt", redis.Write)
	inheritScript       = jobScript("inherit", redis.Write)
	beatScript          = script("beat", redis.Write)
	quitScript          = script("quit", redis.Write)
	sweepScript         = jobScript("sweep", redis.Write, "withdraw")
	cancelScript        = jobScript("cancel", redis.Durable, "withdraw")
	cancelWaitingScript = jobScript("cancel_waiting", redis.Durable, "withdraw")
	rejectScript        = jobScript("reject", redis.Durable, "withdraw")
	admitScript         = jobScript("admit", redis.Write)
	learnScript         = script("learn", redis.Write)
	splitScript         = jobScript("split", redis.Durable)
	redoPartScript      = jobScript("redo_part", redis.Write)
	measuredScript      = script("measured", redis.Write)
	durationsScript     = script("durations", redis.ReadOnly)
	finishScript        = jobScript("finish", redis.Durable, "history")
	failWaitingScript   = jobScript("fail_waiting", redis.Durable, "history")
	forgetScript        = jobScript("forget", redis.Durable, "history")
	recountScript       = jobScript("recount", redis.Write, "history")
	expireScript        = jobScript("expire", redis.Write, "history")
	makeRoomScript      = jobScript("make_room", redis.Write, "history")
	keepResultScript    = jobScript("keep_result", redis.Write)
	writableScript      = script("writable", redis.Replicated)
	restoreScript       = jobScript("restore", redis.Durable, "history")
	removeAgainScript   = jobScript("remove_again", redis.Durable, "withdraw")
	deliveredScript     = jobScript("delivered", redis.Write, "history")
	takeCallbacksScript = jobScript("take_callbacks", redis.Write)
	settleCallScript    = jobScript("settle_callback", redis.Write)
	replayCallScript    = jobScript("replay_callback", redis.Durable)
	waitingCallsScript  = jobScript("callbacks_waiting", redis.ReadOnly)
	deadCallsScript     = jobScript("callbacks_dead", redis.ReadOnly)
)

// jobScript is script for one that works with jobs, all of which need the same libraries.
func jobScript(name string, mode redis.Mode, libraries ...string) *redis.Script {
	return script(name, mode, append([]string{"bands", "shares", "caps", "callbacks", "lib"}, libraries...)...)
}

// script returns a script made of files in scripts/: libraries, then its own.
func script(name string, mode redis.Mode, libraries ...string) *redis.Script {
	parts := make([]string, 0, len(libraries)+2)
	if slices.Contains(libraries, "lib") {
		parts = append(parts, stats.BillLua)
	}
	for _, part := range append(libraries, name) {
		text, err := sources.ReadFile("scripts/" + part + ".lua")
		if err != nil {
			panic(err) // the file is missing from the binary: no test would pass
		}
		parts = append(parts, string(text))
	}
	return redis.NewScript("queue/"+name, mode, parts...)
}
