package comfyui

import "time"

func timeOf(m Message) time.Time { return time.UnixMilli(int64(m.Float("timestamp"))) }
