package comfyui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Stats is what /system_stats tells about a server.
type Stats struct {
	Version Version
	// Argv is the command line.
	Argv []string
	// Devices has the primary one first; it can be empty.
	Devices []Device
	// Raw is the whole answer.
	Raw []byte
}

// Device is one GPU, or the CPU of a server without one.
type Device struct {
	// Name is as ComfyUI writes it: "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync".
	Name string
	// Type is "cuda", "cpu", "mps", ...
	Type string
	// VRAMTotal and VRAMFree are in bytes. Free counts memory that any
	// process may take plus what the server's own pool has to spare.
	VRAMTotal, VRAMFree int64
	// TorchTotal and TorchFree are the server's own pool, in bytes.
	TorchTotal, TorchFree int64
}

// Flag returns the value of a command line flag, "" when it was not given.
func (s Stats) Flag(name string) string {
	for i, arg := range s.Argv {
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			return value
		}
		if arg == name && i+1 < len(s.Argv) {
			return s.Argv[i+1]
		}
	}
	return ""
}

// SystemStats asks who the server is and how much memory it has.
func (c *Client) SystemStats(ctx context.Context) (Stats, error) {
	data, err := c.wire.read(ctx, request{method: http.MethodGet, path: "/system_stats", limit: maxSmall})
	if err != nil {
		return Stats{}, err
	}
	return ParseStats(data)
}

// ParseStats reads an answer of /system_stats. The error is [ErrMalformed].
func ParseStats(data []byte) (Stats, error) {
	v, err := pyjson.Parse(data)
	if err != nil {
		return Stats{}, fmt.Errorf("/system_stats: %w: %w", ErrMalformed, err)
	}
	root, _ := v.(*pyjson.Object)
	system := root.Object("system")
	if system == nil {
		return Stats{}, fmt.Errorf("/system_stats: %w: no system", ErrMalformed)
	}
	stats := Stats{Version: ParseVersion(system.String("comfyui_version")), Raw: data}
	for _, arg := range system.Array("argv") {
		if s, ok := arg.(pyjson.String); ok {
			stats.Argv = append(stats.Argv, string(s))
		}
	}
	for _, item := range root.Array("devices") {
		device, ok := item.(*pyjson.Object)
		if !ok {
			continue
		}
		stats.Devices = append(stats.Devices, Device{
			Name: device.String("name"), Type: device.String("type"),
			VRAMTotal: integer(device, "vram_total"), VRAMFree: integer(device, "vram_free"),
			TorchTotal: integer(device, "torch_vram_total"), TorchFree: integer(device, "torch_vram_free"),
		})
	}
	return stats, nil
}

func integer(o *pyjson.Object, key string) int64 {
	v, _ := o.Get(key)
	n, ok := v.(pyjson.Number)
	if !ok {
		return 0
	}
	if i, ok := n.Int64(); ok {
		return i
	}
	f := n.Float64()
	if !(f > -1<<62 && f < 1<<62) { // NaN as well
		return 0
	}
	return int64(f)
}

// ObjectInfo fetches the server's node classes: raw JSON, often 1 to 20 MB,
// and its hash. The call is slow, as the server scans all of its model
// folders; ten times the usual time is allowed for it. turn, which may be nil,
// is called when the answer begins and before it is read into memory; an error
// of its own ends the call.
func (c *Client) ObjectInfo(ctx context.Context, turn func(context.Context) error) (data []byte, hash string, err error) {
	data, err = c.wire.objectInfo(ctx, request{method: http.MethodGet, path: "/object_info", slow: true, limit: maxObjectInfo, turn: turn})
	if err != nil {
		return nil, "", err
	}
	return data, HashObjectInfo(data), nil
}

// ObjectInfoOf fetches what the server says of one class: {} for one that it
// does not have. It is quick also beside a running prompt. turn is as of
// ObjectInfo.
func (c *Client) ObjectInfoOf(ctx context.Context, class string, turn func(context.Context) error) ([]byte, error) {
	return c.wire.objectInfo(ctx, request{method: http.MethodGet, path: "/object_info/" + url.PathEscape(class), limit: maxClassInfo, turn: turn})
}

func (w *wire) objectInfo(ctx context.Context, r request) ([]byte, error) {
	data, err := w.read(ctx, r)
	if err == nil && tooComplex(data, maxInfoValues) {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, err
	}
	if s := (pyjson.Scanner{Data: data}); s.Peek() != '{' || !s.Skip() || !s.End() {
		return nil, fmt.Errorf("/object_info: %w", ErrMalformed)
	}
	return data, nil
}

// HashObjectInfo names an object_info body: equal bodies have equal hashes (32
// hex digits).
func HashObjectInfo(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Features fetches the server's feature flags as raw JSON. Servers before
// 0.3.45 answer 404, a *[StatusError].
func (c *Client) Features(ctx context.Context) ([]byte, error) {
	return c.wire.get(ctx, "/features", nil)
}
