package caddymodule

import (
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/comfyhub/comfyhub/internal/api"
)

// parseGlobalOption parses the global option "comfyhub" into the app.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next()
		return nil, d.Err("the global option comfyhub is given twice")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "comfyhub", Value: caddyconfig.JSON(app, nil)}, nil
}

// parseDirective parses the directive "comfyhub" of a site.
func parseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return handler, nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens. Syntax:
//
//	comfyhub {
//	    redis              embedded | <url>
//	    redis_replicas     <number>
//	    data               <folder>
//	    storage            <folder> | <url>
//	    secret             <secret> [<older secret...>]
//	    gossip {
//	        bind           <host:port>
//	        advertise      <host:port>
//	        key            <secret>
//	        join           <host:port...>
//	        allow_direct   <cidr|address|host...>
//	        agents_from    <cidr|address...>
//	    }
//	    instance           <url> [a1111]      # repeatable, or with a block:
//	    instance <url> {
//	        a1111
//	        only           tenant=<tenant,...>
//	        gpu            <name>
//	    }
//	    reserve            <instance> tenant=<tenant,...>   # repeatable
//	    max_attempts       <number>
//	    stall_timeout      <duration>
//	    contact_timeout    <duration>
//	    max_queue          <number>
//	    max_queue_size     <size>
//	    max_body           <size>
//	    body_memory        <size>
//	    spool_size         <size>
//	    max_upload         <size>
//	    inputs_from        <host|*.domain|address|cidr|*...>   # repeatable
//	    callbacks {
//	        allow          <host|*.domain|address|cidr|*...>   # repeatable
//	        secret         <secret> [<older secret...>]
//	    }
//	    picture_memory     <size>
//	    max_sockets        <number>
//	    unrunnable_timeout <duration>
//	    catalog_age        <duration>
//	    job_timeout        <duration>
//	    replay_window      <duration>
//	    history            <number>           # or a block:
//	    history {
//	        entries        <number>
//	        age            <duration>
//	        size           <size>
//	    }
//	    input_age          <duration>
//	    order              fair | fifo
//	    overtaking         <duration> | off
//	    short_first        <duration> | off
//	    preempt            bulk [<duration>]
//	    lookahead          0 | 1
//	    tenant_weights {
//	        <tenant>       <number>
//	    }
//	    tenant_limits [<tenant...>] {
//	        waiting        <number>
//	        queue_size     <size>
//	        running        <number>
//	        gpu_seconds    <number>
//	        rate           <number>
//	        storage        <size>
//	        band           interactive|normal|bulk
//	        sockets        <number>
//	        history        <number>
//	        history_size   <size>
//	        userdata       <size>
//	        userdata_files <number>
//	        inputs         <size>
//	        input_files    <number>
//	    }
//	    rules [<tenant...>] {
//	        deny           class_type|model <pattern...>   # repeatable
//	        allow          class_type|model <pattern...>   # repeatable
//	        max            width|height|steps|batch|length <number>   # repeatable
//	    }
//	    operators          <tenant...>
//	    manager            on | off
//	    passthrough        off | read | on
//	    plain_api          root | v1 | off
//	    a1111_api          on | off
//	    frontend           <folder>
//	    primary            <name...>
//	    secrets_to         <instance...>
//	    users              single | multi
//	    free               own | all | off
//	    tracing            on | off
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option's name
	if d.NextArg() {
		return d.ArgErr()
	}
	var seen words
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if !slices.Contains([]string{"instance", "inputs_from", "reserve", "tenant_limits", "rules"}, d.Val()) && seen.again(d.Val()) {
			return d.Errf("%s is given twice", d.Val())
		}
		var err error
		switch {
		case d.Val() == "gossip":
			a.Gossip = new(Gossip)
			err = a.Gossip.UnmarshalCaddyfile(d)
		case d.Val() == "instance":
			err = unmarshalInstance(a, d)
		case d.Val() == "reserve":
			err = a.Reserve.UnmarshalCaddyfile(d)
		case d.Val() == "inputs_from":
			err = addAll(d, &a.InputsFrom, checkHost)
		case d.Val() == "callbacks":
			a.Callbacks = new(Callbacks)
			err = a.Callbacks.UnmarshalCaddyfile(d)
		case d.Val() == "tenant_limits":
			err = a.unmarshalTenantLimits(d)
		case d.Val() == "tenant_weights":
			a.TenantWeights = TenantWeights{}
			err = a.TenantWeights.UnmarshalCaddyfile(d)
		case d.Val() == "rules":
			err = unmarshalRules(a, d)
		case d.Val() == "operators":
			a.Operators, err = unmarshalNames(d, operatorsName)
		case d.Val() == "primary":
			a.Primary, err = unmarshalNames(d, primaryName)
		case d.Val() == "secrets_to":
			a.SecretsTo, err = unmarshalNames(d, trustedName)
		case d.Val() == "preempt":
			err = unmarshalPreempt(a, d)
		case d.Val() == "secret":
			err = a.unmarshalSecret(d)
		case d.Val() == "history" && d.CountRemainingArgs() == 0:
			err = a.unmarshalHistory(d)
		default:
			err = setWord(d, a.set)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// set sets the value of one of the app's words.
func (a *App) set(word, value string) (err error) {
	switch word {
	case "redis":
		a.Redis, err = value, checkRedis(value)
	case "redis_replicas":
		a.RedisReplicas, err = parseCount(value)
	case "data":
		a.Data = value
	case "storage":
		a.Storage, err = value, checkStorage(value)
	case "instance":
		if slices.Contains(slices.Concat(a.Instances, a.A1111), value) {
			return fmt.Errorf("%s is given twice", value)
		}
		a.Instances, err = append(a.Instances, value), checkInstance(value)
	case "max_attempts":
		a.MaxAttempts, err = parseCount(value)
	case "stall_timeout":
		a.StallTimeout, err = parseDuration(value)
	case "contact_timeout":
		a.ContactTimeout, err = parseDuration(value)
	case "max_queue":
		a.MaxQueue, err = parseCount(value)
	case "order":
		a.Order, err = value, oneOf(value, orderFair, orderFIFO)
	case "overtaking":
		a.Overtaking, err = parseOvertaking(value)
	case "short_first":
		a.ShortFirst, err = parseOvertaking(value)
	case "lookahead":
		if err = oneOf(value, "0", "1"); err == nil && value == "1" {
			a.Lookahead = 1
		}
	case "max_queue_size":
		a.MaxQueueSize, err = parseSize(value)
	case "max_body":
		a.MaxBody, err = parseSize(value)
	case "body_memory":
		a.BodyMemory, err = parseSize(value)
	case "spool_size":
		a.SpoolSize, err = parseSize(value)
	case "max_upload":
		a.MaxUpload, err = parseSize(value)
	case "picture_memory":
		a.PictureMemory, err = parseSize(value)
	case "max_sockets":
		a.MaxSockets, err = parseCount(value)
	case "catalog_age":
		a.CatalogAge, err = parseDuration(value)
	case "unrunnable_timeout":
		a.UnrunnableTimeout, err = parseDuration(value)
	case "job_timeout":
		a.JobTimeout, err = parseDuration(value)
	case "replay_window":
		a.ReplayWindow, err = parseDuration(value)
	case "history":
		a.History, err = parseCount(value)
	case "input_age":
		a.InputAge, err = parseDuration(value)
	case "manager":
		a.Manager, err = value == "on", checkSwitch(value)
	case "passthrough":
		a.Passthrough, err = value, checkPassthrough(value)
	case "plain_api":
		a.PlainAPI, err = value, checkPlainAPI(value)
	case "a1111_api":
		a.A1111API, err = value, checkSwitch(value)
	case "frontend":
		a.Frontend = value
	case "users":
		a.MultiUser, err = value == "multi", oneOf(value, "single", "multi")
	case "free":
		a.Free, err = value, checkFree(value)
	case "tracing":
		a.Tracing, err = value == "on", checkSwitch(value)
	default:
		return errUnknownWord
	}
	return err
}

// unmarshalHistory parses the block "history" of the app.
func (a *App) unmarshalHistory(d *caddyfile.Dispenser) error {
	return setBlock(d, a.setHistory, "history takes a number or a block")
}

func (a *App) setHistory(word, value string) (err error) {
	switch word {
	case "entries":
		a.History, err = parseCount(value)
	case "age":
		a.HistoryAge, err = parseDuration(value)
	case "size":
		a.HistorySize, err = parseSize(value)
	default:
		return errUnknownWord
	}
	return err
}

// addAll adds the arguments of one line to a list whose word can be repeated.
func addAll(d *caddyfile.Dispenser, list *[]string, check func(string) error) error {
	word, values := d.Val(), d.RemainingArgs()
	if len(values) == 0 {
		return d.ArgErr()
	}
	for _, value := range values {
		if slices.Contains(*list, value) {
			return d.Errf("%s: %s is given twice", word, value)
		}
		if err := check(value); err != nil {
			return d.Errf("%s: %w", word, err)
		}
		*list = append(*list, value)
	}
	return nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	comfyhub [<matcher>] {
//	    tenant            <placeholder>
//	    tenant_secret     <secret>
//	    trust_tenant_from <cidr...> | private_ranges   # deprecated
//	    events            serial | live
//	    queue             all | one
//	    cors              <origin> | *
//	    hosts             <name...> | *
//	    keys              off | optional | required
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	if d.NextArg() {
		return d.ArgErr()
	}
	var seen words
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if seen.again(d.Val()) {
			return d.Errf("%s is given twice", d.Val())
		}
		if d.Val() == "trust_tenant_from" {
			ranges := d.RemainingArgs()
			if len(ranges) == 0 {
				return d.ArgErr()
			}
			if _, err := parseRanges(ranges); err != nil {
				return d.Errf("trust_tenant_from: %w", err)
			}
			h.TrustTenantFrom = ranges
			continue
		}
		if d.Val() == "hosts" {
			if h.Hosts = d.RemainingArgs(); len(h.Hosts) == 0 {
				return d.ArgErr()
			}
			for _, name := range h.Hosts {
				if err := checkHostName(name); err != nil {
					return d.Errf("hosts: %w", err)
				}
			}
			continue
		}
		if err := setWord(d, h.set); err != nil {
			return err
		}
	}
	return nil
}

func (h *Handler) set(word, value string) (err error) {
	switch word {
	case "tenant":
		h.Tenant = value
	case "tenant_secret":
		h.TenantSecret, err = value, checkTenantSecret(value, "")
	case "events":
		h.Events, err = value, oneOf(value, eventsSerial, eventsLive)
	case "queue":
		h.Queue, err = value, oneOf(value, queueAll, queueOne)
	case "cors":
		h.CORS, err = value, checkOrigin(value)
	case "keys":
		h.Keys, err = value, oneOf(value, keysOff, string(api.KeysOptional), string(api.KeysRequired))
	default:
		return errUnknownWord
	}
	return err
}
