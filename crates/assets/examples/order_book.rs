//! Business logic: a limit order book. One call places an order, matches it by price and then by time, moves money and goods
//! of both sides, and rests what is left: all of it or nothing.
//!
//! Accounts are assets: `(trader << 32) | 0` is money, `(trader << 32) | instrument` is goods. What a resting order may cost is
//! taken when it is placed. Levels of the book are notes: one book for each instrument and side, one note a price.

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::Arc;

use assent_assets::{AssetId, Logic, Refusal, Work};
use assent_frame::{Malformed, Reader, Writer};

/// Reasons of this logic.
const BAD_ORDER: i64 = 1;
const CASH: u32 = 0;

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Wants goods.
    Buy,
    /// Has goods.
    Sell,
}

/// An order as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whose.
    pub trader: u32,
    /// Which instrument, from 1.
    pub instrument: u32,
    /// Which side.
    pub side: Side,
    /// The worst price that it takes.
    pub price: u32,
    /// How much.
    pub quantity: u32,
}

/// What an order met: the other trader, the price, how much.
pub type Fill = (u32, u32, u32);

/// The logic: it has no state, all of it stands in assets and notes.
#[derive(Clone, Copy, Debug)]
pub struct OrderBook;

impl Order {
    /// As the input of a call.
    pub fn lay(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u32(self.trader).u32(self.instrument).u8(u8::from(self.side == Side::Sell));
        out.u32(self.price).u32(self.quantity);
        out.into_vec()
    }

    fn read(input: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(input);
        let (trader, instrument) = (reader.u32("trader")?, reader.u32("instrument")?);
        let side = if reader.u8("side")? == 0 { Side::Buy } else { Side::Sell };
        let order = Self { trader, instrument, side, price: reader.u32("price")?, quantity: reader.u32("quantity")? };
        reader.end()?;
        if instrument == CASH || order.price == 0 || order.quantity == 0 {
            return Err(Malformed { field: "order" });
        }
        Ok(order)
    }
}

/// The asset of a trader: money for 0, else goods.
pub fn account(trader: u32, instrument: u32) -> AssetId {
    AssetId(u64::from(trader) << 32 | u64::from(instrument))
}

fn book(instrument: u32, side: Side) -> u64 {
    u64::from(instrument) << 1 | u64::from(side == Side::Sell)
}

/// The best price of a side has the smallest key.
fn key(side: Side, price: u32) -> u64 {
    u64::from(if side == Side::Sell { price } else { u32::MAX - price })
}

fn price_of(side: Side, key: u64) -> u32 {
    let price = u32::try_from(key).unwrap_or(u32::MAX);
    if side == Side::Sell { price } else { u32::MAX - price }
}

/// The orders of a level, the oldest first: who, and how much.
fn read_level(note: &[u8]) -> Vec<(u32, u32)> {
    let mut reader = Reader::new(note);
    std::iter::from_fn(|| Some((reader.u32("trader").ok()?, reader.u32("quantity").ok()?))).collect()
}

fn lay_level(orders: &[(u32, u32)]) -> Vec<u8> {
    let mut out = Writer::new();
    orders.iter().for_each(|(trader, quantity)| _ = out.u32(*trader).u32(*quantity));
    out.into_vec()
}

impl Logic for OrderBook {
    fn run(&self, work: &mut Work<'_>, input: &[u8], output: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut order = Order::read(input).map_err(|_| Refusal::Logic { code: BAD_ORDER, detail: 0 })?;
        let (price, quantity) = (i64::from(order.price), i64::from(order.quantity));
        // Taken first, so that no order can promise what its trader does not have.
        let (pays, most) = match order.side {
            Side::Buy => (account(order.trader, CASH), price * quantity),
            Side::Sell => (account(order.trader, order.instrument), quantity),
        };
        work.add_within(pays, -most, 0, i64::MAX)?;
        let mut out = Writer::new();
        while order.quantity > 0
            && let Some(fill) = meet(work, &mut order)?
        {
            out.u32(fill.0).u32(fill.1).u32(fill.2);
        }
        if order.quantity > 0 {
            let (book, key) = (book(order.instrument, order.side), key(order.side, order.price));
            let mut level = work.note(book, key).map(read_level).unwrap_or_default();
            level.push((order.trader, order.quantity));
            work.put_note(book, key, Some(&lay_level(&level)))?;
        }
        *output = out.into_vec();
        Ok(())
    }
}

/// Meets the best level of the other side, as far as its oldest order goes; nothing if the price is not good enough.
fn meet(work: &mut Work<'_>, order: &mut Order) -> Result<Option<Fill>, Refusal> {
    let other = if order.side == Side::Buy { Side::Sell } else { Side::Buy };
    let levels = book(order.instrument, other);
    let Some((key, note)) = work.first_note(levels) else { return Ok(None) };
    let price = price_of(other, key);
    let good = if order.side == Side::Buy { price <= order.price } else { price >= order.price };
    let mut level = read_level(note);
    let Some((trader, there)) = level.first_mut().filter(|_| good) else { return Ok(None) };
    let fill = (*trader, price, order.quantity.min(*there));
    *there -= fill.2;
    level.retain(|(_, quantity)| *quantity > 0);
    let laid = lay_level(&level);
    work.put_note(levels, key, (!laid.is_empty()).then_some(&laid))?;
    order.quantity -= fill.2;
    let (money, goods) = (i64::from(price) * i64::from(fill.2), i64::from(fill.2));
    let (buyer, seller) = if order.side == Side::Buy { (order.trader, fill.0) } else { (fill.0, order.trader) };
    work.add(account(buyer, order.instrument), goods)?;
    work.add(account(seller, CASH), money)?;
    if order.side == Side::Buy {
        // It was taken at the limit; the better price is the buyer's.
        work.add(account(buyer, CASH), i64::from(order.price - price) * goods)?;
    }
    Ok(Some(fill))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut town = town::Town::new();
    for (trader, side, price, quantity) in [(1, Side::Sell, 10, 5), (2, Side::Sell, 11, 5), (3, Side::Buy, 11, 7)] {
        let order = Order { trader, instrument: 7, side, price, quantity };
        match town.place(order)? {
            Ok(fills) => println!("{order:?} met {fills:?}"),
            Err(refusal) => println!("{order:?} was refused: {refusal}"),
        }
    }
    Ok(())
}

/// A machine with a few traders.
mod town {
    use assent_assets::{Answer, Command, Limits, Logics, Machine, Op};
    use assent_membership::Sequence;

    use super::*;

    pub(crate) struct Town(pub(crate) Machine);

    impl Town {
        /// Traders 1 to 4, each with 1,000 of money and 100 of instrument 7.
        pub(crate) fn new() -> Self {
            let machine = Machine::new(Limits::default(), Logics::default().with(1, Arc::new(OrderBook)));
            let mut town = Self(machine);
            let accounts = (1..=4).flat_map(|trader| [(account(trader, CASH), 1_000), (account(trader, 7), 100)]);
            let ops: Vec<Op> = accounts.map(|(id, value)| Op::Create { id, value }).collect();
            let mut command = Writer::new();
            Command::lay_batch(&mut command, None, &ops);
            _ = town.apply(command.as_slice());
            town
        }

        pub(crate) fn apply(&mut self, command: &[u8]) -> Result<Answer, Box<dyn std::error::Error>> {
            let (next, mut answer) = (Sequence(self.0.sequence().0 + 1), Vec::new());
            self.0.take(next, 0, command, &mut answer)?;
            Ok(Answer::read(&answer)?)
        }

        /// Places an order: what it met, or why it was refused.
        pub(crate) fn place(&mut self, order: Order) -> Result<Result<Vec<Fill>, Refusal>, Box<dyn std::error::Error>> {
            let mut command = Writer::new();
            Command::lay_call(&mut command, None, 1, &order.lay());
            Ok(match self.apply(command.as_slice())? {
                Answer::Done(results) => {
                    let mut reader = Reader::new(&results.output);
                    let mut fills = Vec::new();
                    while !reader.rest().is_empty() {
                        fills.push((reader.u32("trader")?, reader.u32("price")?, reader.u32("quantity")?));
                    }
                    Ok(fills)
                }
                Answer::Refused { refusal, .. } => Err(refusal),
                other => return Err(format!("{other:?}").into()),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::town::Town;
    use super::*;

    fn sell(trader: u32, price: u32, quantity: u32) -> Order {
        Order { trader, instrument: 7, side: Side::Sell, price, quantity }
    }

    fn buy(trader: u32, price: u32, quantity: u32) -> Order {
        Order { side: Side::Buy, ..sell(trader, price, quantity) }
    }

    fn has(town: &Town, trader: u32) -> (i64, i64) {
        let value = |instrument| town.0.get(account(trader, instrument)).map_or(-1, |asset| asset.value);
        (value(CASH), value(7))
    }

    #[test]
    fn the_best_price_is_met_first_then_the_oldest_order_and_the_rest_waits() {
        let mut town = Town::new();
        for order in [sell(1, 11, 5), sell(2, 10, 5), sell(3, 10, 5)] {
            assert_eq!(town.place(order).unwrap(), Ok(Vec::new()));
        }
        assert_eq!(town.place(buy(4, 11, 12)).unwrap(), Ok(vec![(2, 10, 5), (3, 10, 5), (1, 11, 2)]));
        assert_eq!(has(&town, 4), (1_000 - 100 - 22, 112), "the better price is the buyer's");
        assert_eq!((has(&town, 1), has(&town, 2), has(&town, 3)), ((1_022, 95), (1_050, 95), (1_050, 95)));
        assert_eq!(town.place(buy(4, 10, 1)).unwrap(), Ok(Vec::new()), "11 is too much");
        assert_eq!(town.place(sell(2, 9, 1)).unwrap(), Ok(vec![(4, 10, 1)]), "it meets what waits, at its price");
        assert_eq!(has(&town, 2), (1_060, 94));
    }

    #[test]
    fn an_order_beyond_its_traders_means_is_refused_and_nothing_of_it_remains() {
        let mut town = Town::new();
        town.place(sell(1, 10, 60)).unwrap().unwrap();
        let before = (town.0.hash(), has(&town, 2));
        let refused = town.place(buy(2, 10, 101)).unwrap();
        assert_eq!(refused, Err(Refusal::Bounds { id: account(2, CASH), value: -10, bound: 0 }));
        assert_eq!(town.place(buy(2, 0, 1)).unwrap(), Err(Refusal::Logic { code: BAD_ORDER, detail: 0 }));
        assert_ne!(town.0.hash(), before.0, "the log gave both a place, and that is all");
        assert_eq!((has(&town, 2), has(&town, 1)), (before.1, (1_000, 40)));
        let total = |town: &Town| (1..=4).map(|trader| has(town, trader).0).sum::<i64>();
        assert_eq!(total(&town), 4_000);
        for (trader, price) in [(2, 10), (3, 12), (4, 9), (1, 8)] {
            town.place(buy(trader, price, 20)).unwrap().unwrap();
        }
        let waits = 20 * (9 + 8);
        assert_eq!(total(&town), 4_000 - waits, "what waits to be met was taken");
    }
}
