package files

import (
	_ "embed"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/stats"
)

//go:embed scripts/lib.lua
var libLua string

//go:embed scripts/adopt.lua
var adoptLua string

//go:embed scripts/blocks.lua
var blocksLua string

//go:embed scripts/series.lua
var seriesLua string

//go:embed scripts/reserve.lua
var reserveLua string

//go:embed scripts/restore.lua
var restoreLua string

//go:embed scripts/put.lua
var putLua string

//go:embed scripts/allot.lua
var allotLua string

//go:embed scripts/replace.lua
var replaceLua string

//go:embed scripts/remove.lua
var removeLua string

//go:embed scripts/trash.lua
var trashLua string

//go:embed scripts/empty.lua
var emptyLua string

//go:embed scripts/takeback.lua
var takeBackLua string

//go:embed scripts/hold.lua
var holdLua string

//go:embed scripts/doom.lua
var doomLua string

//go:embed scripts/spare.lua
var spareLua string

//go:embed scripts/mark.lua
var markLua string

//go:embed scripts/bond.lua
var bondLua string

//go:embed scripts/use.lua
var useLua string

//go:embed scripts/lead.lua
var leadLua string

//go:embed scripts/note.lua
var noteLua string

// Names are durable: clients are told them. The rest can be made again.
var (
	putScript      = redis.NewScript("files/put", redis.Durable, libLua, seriesLua, trashLua, putLua)
	allotScript    = redis.NewScript("files/allot", redis.Durable, libLua, blocksLua, allotLua)
	restoreScript  = redis.NewScript("files/restore", redis.Durable, libLua, seriesLua, restoreLua)
	reserveScript  = redis.NewScript("files/reserve", redis.Write, libLua, blocksLua, reserveLua)
	replaceScript  = redis.NewScript("files/replace", redis.Durable, stats.BillLua, libLua, seriesLua, replaceLua)
	removeScript   = redis.NewScript("files/remove", redis.Durable, libLua, seriesLua, trashLua, removeLua)
	emptyScript    = redis.NewScript("files/empty", redis.Durable, libLua, trashLua, emptyLua)
	takeBackScript = redis.NewScript("files/takeback", redis.Durable, libLua, seriesLua, trashLua, takeBackLua)
	markScript     = redis.NewScript("files/mark", redis.Durable, markLua)
	bondScript     = redis.NewScript("files/bond", redis.Durable, bondLua)
	holdScript     = redis.NewScript("files/hold", redis.Write, holdLua)
	doomScript     = redis.NewScript("files/doom", redis.Write, libLua, doomLua)
	spareScript    = redis.NewScript("files/spare", redis.Write, spareLua)
	adoptScript    = redis.NewScript("files/adopt", redis.Write, libLua, adoptLua)
	useScript      = redis.NewScript("files/use", redis.Write, libLua, useLua)
	leadScript     = redis.NewScript("files/lead", redis.Write, leadLua)
	noteScript     = redis.NewScript("files/note", redis.Write, noteLua)
)
