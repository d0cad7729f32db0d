package fakebot

import (
	"encoding/json"
	"net/http"
	"time"
)

// controlPath is where a program outside sets how calls fail, such as
//
//	POST /fake/fault {"method": "sendPhoto", "fault": "hang_after", "for": "240s"}
//
// Without a method it is all of them but getUpdates. With "delay" the calls are late, and then
// fail or not. A fault ends by itself, or is replaced by the next.
const controlPath = "/fake/fault"

// ordered is a fault that was set from outside.
type ordered struct {
	method string
	fault  Fault
	delay  time.Duration
	until  time.Time
}

// faults says how calls fail.
type faults struct {
	*place
	order ordered
}

func faultNames() map[string]Fault {
	return map[string]Fault{
		"": None, "flood": Flood, "broken": Broken, "cut_before": CutBefore, "cut_after": CutAfter, "hang": Hang, "hang_after": HangAfter,
	}
}

// control sets a fault.
func (f *faults) control(w http.ResponseWriter, r *http.Request) {
	var order struct{ Method, Fault, For, Delay string }
	if r.Method != http.MethodPost || json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&order) != nil {
		http.Error(w, `POST {"method", "fault", "for", "delay"}`, http.StatusBadRequest)
		return
	}
	fault, known := faultNames()[order.Fault]
	lasts, err := time.ParseDuration(order.For)
	delay, delayErr := time.ParseDuration("0s" + order.Delay)
	if !known || err != nil || delayErr != nil {
		http.Error(w, "no such fault, or no duration such as 240s", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.order = ordered{order.Method, fault, delay, time.Now().Add(lasts)}
}

// faultOf returns how a call fails, after it was delayed.
func (f *faults) faultOf(method string, r *http.Request) Fault {
	f.mu.Lock()
	order := f.order
	f.mu.Unlock()
	if time.Now().Before(order.until) && (order.method == "" || order.method == method) {
		if order.delay > 0 {
			timer := time.NewTimer(order.delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
			case <-f.done:
			}
		}
		return order.fault
	}
	if f.o.Fault != nil {
		return f.o.Fault(method)
	}
	return None
}
