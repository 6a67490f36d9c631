//! Which connections are taken, and which make room for others.

use super::*;

/// A client's connection.
struct Client {
    place: ConnectionPermit,
    limit: Arc<HeadLimit>,
}

impl Client {
    /// Its request begins.
    fn asks(self) -> Client {
        self.limit.begin();
        self.limit.head_came(false).unwrap();
        self
    }

    /// Its request is over.
    fn answered(&self) {
        self.limit.begin();
    }
}

/// At most so many in all, and two from one address.
fn connect(connections: &Arc<Connections>, address: &str, total: usize) -> Option<Client> {
    let most = ConnectionLimits { total, per_address: 2 };
    let limit = HeadLimit::new();
    let place = connections.take(address.parse().ok(), false, &limit, most)?;
    Some(Client { place, limit })
}

/// Which of these have to make room.
fn ended(clients: &[Client]) -> Vec<usize> {
    let all = clients.iter().enumerate();
    let ended = all.filter(|(_, client)| client.place.is_to_end());
    ended.map(|(at, _)| at).collect()
}

#[test]
fn places_are_given_back() {
    let connections = Arc::new(Connections::default());
    let (a, b) = ("127.0.0.1", "127.0.0.2");
    let first = connect(&connections, a, 3).unwrap().asks();
    let second = connect(&connections, a, 3).unwrap().asks();
    assert!(connect(&connections, a, 3).is_none(), "two from one address");
    let third = connect(&connections, b, 3).unwrap().asks();
    assert!(connect(&connections, "", 3).is_none(), "three in all");
    drop(first);
    let fourth = connect(&connections, a, 3).unwrap().asks();
    assert!(connect(&connections, b, 3).is_none());
    drop((second, third, fourth));
    let open = connections.lock();
    let left = (open.all.len(), open.by_address.len(), open.idle.first());
    assert_eq!(left, (0, 0, None));
}

#[test]
fn a_proxy_counts_in_the_total_alone() {
    let connections = Arc::new(Connections::default());
    let most = ConnectionLimits {
        total: 3,
        per_address: 1,
    };
    let limit = HeadLimit::new();
    limit.begin();
    limit.head_came(false).unwrap();
    let proxy = "127.0.0.1".parse().ok();
    let taken: Vec<_> = (0..4).map(|_| connections.take(proxy, true, &limit, most)).collect();
    assert!(taken[..3].iter().all(Option::is_some) && taken[3].is_none());
}

#[test]
fn the_address_with_the_most_idle_connections_makes_room_with_the_one_that_has_waited_longest() {
    let connections = Arc::new(Connections::default());
    let addresses = [
        "203.0.113.1",
        "203.0.113.2",
        "203.0.113.3",
        "203.0.113.2",
        "203.0.113.3",
    ];
    let clients = addresses.map(|address| connect(&connections, address, 5).unwrap());
    assert_eq!(ended(&clients), [0; 0]);
    let _fourth = connect(&connections, "203.0.113.4", 5).unwrap();
    assert_eq!(ended(&clients), [1]);
    let _fifth = connect(&connections, "203.0.113.5", 5).unwrap();
    assert_eq!(ended(&clients), [1, 2]);
    let _sixth = connect(&connections, "203.0.113.6", 5).unwrap();
    assert_eq!(ended(&clients), [0, 1, 2], "all have one");
    drop(clients);
    assert_eq!(connections.lock().all.len(), 3, "each gave its place back once");
}

#[test]
fn who_has_a_request_makes_no_room_and_waits_anew_once_that_is_over() {
    let connections = Arc::new(Connections::default());
    let clients = ["203.0.113.1", "203.0.113.2"].map(|address| connect(&connections, address, 2).unwrap().asks());
    assert!(connect(&connections, "203.0.113.3", 2).is_none());
    clients[1].answered();
    let _third = connect(&connections, "203.0.113.3", 2).unwrap();
    assert_eq!(ended(&clients), [1], "the other has a request");
    let fourth = connect(&connections, "203.0.113.4", 2).unwrap();
    assert!(!fourth.place.is_to_end());
    clients[0].answered();
    let _fifth = connect(&connections, "203.0.113.5", 2).unwrap();
    assert_eq!(ended(&clients), [1], "the fourth has waited for longer");
    assert!(fourth.place.is_to_end());
}

#[test]
fn idle_connections_of_ipv6_count_by_the_network_that_one_customer_may_have() {
    let connections = Arc::new(Connections::default());
    let addresses = ["203.0.113.1", "2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:2:1::1"];
    let clients = addresses.map(|address| connect(&connections, address, 4).unwrap());
    let _fifth = connect(&connections, "203.0.113.5", 4).unwrap();
    assert_eq!(ended(&clients), [1]);
}

#[test]
fn over_http2_a_connection_is_idle_while_no_request_holds_its_handler_and_all_is_taken() {
    let connections = Arc::new(Connections::default());
    let client = connect(&connections, "203.0.113.1", 1).unwrap();
    let handler = Arc::new(());
    client.place.served_by(&handler);
    let pingoras = Arc::clone(&handler);
    let taken_in = Arc::clone(&pingoras);
    let refused = || connect(&connections, "203.0.113.2", 1).is_none();
    assert!(refused(), "a first request was taken in");
    client.limit.lift();
    assert!(refused());
    drop(taken_in);
    client.limit.stalls(true);
    assert!(refused(), "its answer is not taken");
    client.limit.stalls(false);
    assert!(!refused() && client.place.is_to_end());
}

#[test]
fn the_only_idle_one_of_many_is_found_within_so_many_looks_for_each_that_comes() {
    let connections = Arc::new(Connections::default());
    let total = LOOKS * 20;
    let come = |number: usize| connect(&connections, &format!("203.0.{}.{}", number / 100, number % 100), total);
    let clients: Vec<Client> = (0..total).map(|number| come(number).unwrap().asks()).collect();
    assert!((0..20).all(|_| come(total).is_none()));
    clients[total / 2].answered();
    let tries = (1..=20).find(|_| come(total).is_some());
    assert!(tries.is_some(), "each was looked at once");
    assert_eq!(ended(&clients), [total / 2]);
}

#[test]
fn a_lower_limit_is_come_to_as_others_come() {
    let connections = Arc::new(Connections::default());
    let addresses = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
    let clients = addresses.map(|address| connect(&connections, address, 3).unwrap());
    let _fourth = connect(&connections, "203.0.113.4", 2).unwrap();
    assert_eq!(ended(&clients), [0, 1]);
}

#[tokio::test]
async fn a_connection_that_has_to_make_room_is_woken() {
    let connections = Arc::new(Connections::default());
    let client = connect(&connections, "203.0.113.1", 1).unwrap();
    let other = async {
        tokio::task::yield_now().await;
        connect(&connections, "203.0.113.2", 1)
    };
    let ((), other) = tokio::join!(client.place.makes_room(), other);
    assert!(other.is_some());
}

/// Each had a request since it was looked at before: a new one was refused though nearly all were idle.
#[test]
fn one_that_is_idle_makes_room_though_all_that_are_looked_at_had_a_request_meanwhile() {
    let connections = Arc::new(Connections::default());
    let total = LOOKS * 4;
    let come = |number: usize| connect(&connections, &format!("203.0.{}.{}", number / 100, number % 100), total);
    let clients: Vec<Client> = (0..total).map(|number| come(number).unwrap()).collect();
    for _ in 0..2 {
        // The first request of each is waited for since its connection began.
        clients.iter().for_each(Client::answered);
        for _ in 0..4 {
            connections.lock().look_around();
        }
    }
    clients.iter().for_each(Client::answered);
    assert!(come(total).is_some());
    assert_eq!(ended(&clients).len(), 1);
}
