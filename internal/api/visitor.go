package api

// Visitor is what the web server knows of a request beyond its bytes.
type Visitor struct {
	// Tenant pays for the work; empty means the default tenant.
	Tenant string
	// Trusted says that the caller may speak for every tenant.
	Trusted bool
	// Named is the tenant that the request itself names. It counts only for callers who
	// show that they may act for tenants.
	Named string
	// TenantSecret lets callers who show it act for tenants.
	TenantSecret TenantSecret
	// Keys say whether API keys identify callers here.
	Keys KeyPolicy
	// Identified says that the tenant was checked: it comes from a login, or from somebody
	// who may name tenants, and is not a word of the configuration.
	Identified bool
	// Operator says that the request itself shows that an operator makes it, whoever its
	// tenant is.
	Operator bool
	// OperatorsSite says that the request came in at a site for operators, which has no page,
	// file or extension of ComfyUI.
	OperatorsSite bool
	// IP is an address that the client cannot choose: that of the connection, or behind
	// proxies that the web server knows the one that they have seen. Whoever limits callers
	// or writes down where they are goes by it.
	IP string
	// Live asks for interleaved events instead of a serial stream.
	Live bool
	// QueueOne lists at most one job as running, as one ComfyUI does, and the
	// others as pending.
	QueueOne bool
	// CORS is the origin whose pages may call the hub, "*" for all. Empty means
	// none.
	CORS string
	// Host is what the browser asked for, where a trusted proxy says so; empty
	// means the Host header.
	Host string
	// Prefix is the path below which the browser sees the hub, escaped and without a slash at
	// its end; empty means the root. Nobody but the web server and proxies that it knows can
	// choose it.
	Prefix string
	// StrangeHost says that the web server does not go by the name that was
	// asked for: a page may have had its own name resolved to this machine
	// (DNS rebinding).
	StrangeHost bool
	// Secure says that the browser speaks TLS.
	Secure bool
	// Forwarded says that the request came through a proxy, known or not.
	Forwarded bool
	// Proxied says that it came through one whose word on the client's address does not
	// count, so that IP may be everybody's.
	Proxied bool
}
